"""Names in C: those of a graph or model reach comments and strings, escaped, and never become tokens by themselves.

Identifiers are generated. Where a name makes code easier to read, as in the fields of a header, it follows a prefix,
so that no keyword and no macro is met; names of graphs are identifiers, those of models can be anything.
"""

import re

_LONGEST = 48
_WIDEST = 200
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADERS = """
aio alloca assert byteswap complex cpio ctype dirent dlfcn elf endian err errno execinfo fcntl features fenv
float fmtmsg fnmatch ftw getopt glob grp iconv ifaddrs inttypes iso646 kernels langinfo libgen libintl limits
link locale malloc math memory monetary mqueue mtx ndbm netdb nl_types obstack paths poll pthread pty pwd
regex resolv sched search selftest sem semaphore setjmp sgtty shadow signal spawn stab stdalign stdarg
stdatomic stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings stropts support syslog tar
termio termios tgmath threads time ttyent uchar ucontext ulimit unistd utime utmp utmpx values wait wchar
wctype weights wordexp main
"""
_TAKEN = frozenset(_HEADERS.split())
"""Headers and functions of C libraries, and our own files, that a project must not hide."""


def comment(text: str) -> str:
    r"""Text that cannot end or open a comment and is plain ASCII.

    >>> comment("a */ b\n??/")
    'a * / b\\n? ?/'
    """
    plain = "".join(_visible(character) for character in text[: 4 * _WIDEST])
    plain = plain if len(plain) <= _WIDEST else f"{plain[:_WIDEST]}..."
    for pair in ("*/", "/*", "??"):
        while pair in plain:
            plain = plain.replace(pair, " ".join(pair))
    return plain.rstrip("\\")


def _visible(character: str) -> str:
    if " " <= character <= "~":
        return character
    return character.encode("unicode_escape").decode("ascii")


def string(text: str) -> str:
    r"""A C string literal with the UTF-8 bytes of a text, in ASCII and without trigraphs.

    >>> string('say "ä??/"')
    '"say \\"\\303\\244\\?\\?/\\""'
    """
    parts = []
    for byte in text.encode("utf-8", "surrogatepass"):
        character = chr(byte)
        if character in '"\\?':
            parts.append(f"\\{character}")
        else:
            parts.append(character if " " <= character <= "~" else f"\\{byte:03o}")
    return f'"{"".join(parts)}"'


def field(prefix: str, name: str, number: int) -> str:
    """An identifier with a prefix: the name follows it if it is a short identifier, else a number.

    >>> field("v_", "int", 0), field("v_", "x" * 99, 3), field("v_", "a b", 1)
    ('v_int', 'v_3', 'v_1')
    """
    usable = len(name) <= _LONGEST and _IDENTIFIER.fullmatch(name) is not None
    return f"{prefix}{name if usable else number}"


def project_name(text: str) -> str:
    """The nearest name that files and functions of a project can have: a C identifier that hides nothing.

    >>> project_name("my-model.v2"), project_name("stdint"), project_name("3d*/"), project_name("int")
    ('my_model_v2', 'stdint_net', 'n3d', 'int')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", text[: 4 * _LONGEST].lower())[:_LONGEST].strip("_")
    plain = f"n{plain}" if not plain or plain[0].isdigit() else plain
    plain = f"n_{plain}" if plain.startswith("oi_") or plain == "oi" else plain
    return f"{plain}_net" if plain in _TAKEN else plain
