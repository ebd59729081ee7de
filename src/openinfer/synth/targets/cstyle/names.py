"""Names in C: those of a graph or model appear in comments and strings, escaped, and never as tokens of their own.

Identifiers are generated. Where a name makes code easier to read, as in the fields of a header, it follows a prefix, so
that it cannot clash with a keyword or macro. Names in graphs are identifiers; names in models can be anything.
"""

import re

_LONGEST = 48
_WIDEST = 200
_HEADERS = """
aio aliases alloca ar argp argz arm_acle arm_neon assert builtins byteswap cet complex conio corecrt cpio cpuid crt
crtdefs crypt ctype devctl direct dirent dispatch dlfcn elf endian envlock envz err errno error execinfo fastmath fcntl
features fenv float fmtmsg fnmatch fpu_control fstab ftw fts gconv gcov getopt glob grp gshadow iconv ieee754 ieeefp
ifaddrs intrin inttypes io iso646 langinfo lastlog libgen libintl libio limits link locale malloc math mcheck memory
mm3dnow mm_malloc mntent monetary mqueue ndbm netdb newlib nl_types nss obstack omp openacc paths poll process pthread
pty pwd quadmath re_comp reent regdef regex regexp resolv sal sched search semaphore setjmp sgtty shadow share signal
signum spawn stab stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdfix stdint stdio stdio_ext stdlib
stdnoreturn string strings stropts syscall sysexits syslimits syslog tar termio termios tgmath threads thread_db time
ttyent typeinfo uchar ucontext ulimit unctrl unistd unwind utime utmp utmpx vadefs values varargs vcruntime wait wchar
wctype windows wordexp
"""
_LIBRARIES = "c clone dl fanotify gcc inotify m main ns_o pkey res rt si trap util xdr"
"""Libraries that linkers know, and prefixes in headers of ``_init``, ``_free``, ``_status``, ``_TRACE``, ``_FILES``."""
_STATUSES = "f r w x"
"""``X_OK`` and its like are in ``unistd.h``."""
_TARGETS = """
all all_build clean codegen continuous depend edit_cache example experimental help install list_install_components
nightly package package_source preinstall rebuild_cache run_tests selftest test zero_check
"""
"""The targets of make and CMake in every project."""
_OWN = "block end i kernels runtime s support timed v weights"
"""Our own files, and the prefixes that names of the graph get."""
_TAKEN = frozenset(" ".join([_HEADERS, _LIBRARIES, _STATUSES, _TARGETS, _OWN]).split())
_FAMILIES = re.compile("(aio|atomic|cnd|epoll|inet6|mtx|posix|pthread|sem|thrd|tss)(_.*)?|[a-z0-9]*intrin|arm_.*")
"""Families of names in which libraries have functions, types and macros that ours could clash with."""


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


def project_name(text: str) -> str:
    """The nearest name that files and functions of a project can have: a C identifier that shadows nothing.

    >>> project_name("my-model.v2"), project_name("stdint"), project_name("3d*/"), project_name("int")
    ('my_model_v2', 'stdint_net', 'n3d', 'int')
    >>> project_name("test"), project_name("x"), project_name("pthread_mutex")
    ('test_net', 'x_net', 'n_pthread_mutex')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", text[: 4 * _LONGEST].lower())[:_LONGEST].strip("_")
    plain = f"n{plain}" if not plain or plain[0].isdigit() else plain
    plain = f"n_{plain}" if plain.startswith("oi_") or plain == "oi" else plain
    plain = f"n_{plain}" if _FAMILIES.fullmatch(plain) else plain
    return f"{plain}_net" if plain in _TAKEN else plain
