"""The names of a project's public interface: fields for sizes, inputs and outputs.

They are valid identifiers in every target language. A field has its variable's name, prefixed if that is or could be a
keyword or macro. A name that is not a short identifier becomes a number.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openinfer.loops.dim import sizes_in
from openinfer.synth.program.ir import Program, Value

_LONGEST = 48
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires restrict
return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
"""The keywords of C and C++, either of which may include the header."""
_MACROS = """
I arm cdecl complex environ errno far fortran h_addr h_errno hpux huge i386 imaginary interface interrupt linux mips
near noreturn pascal pixel sa_handler sa_sigaction small sparc st_atime st_ctime st_mtime stderr stdin stdout sun unix
vax vector
"""
"""Macros that compilers and system headers define in lower case, plus ``I``."""
_TAKEN = frozenset(f"{_KEYWORDS} {_MACROS}".split())


def field(prefix: str, name: str, number: int) -> str:
    """A prefixed identifier: the prefix and the name if it is a short identifier, else the prefix and a number.

    >>> field("v_", "int", 0), field("v_", "x" * 99, 3), field("v_", "a b", 1)
    ('v_int', 'v_3', 'v_1')
    """
    usable = len(name) <= _LONGEST and _IDENTIFIER.fullmatch(name) is not None
    return f"{prefix}{name if usable else number}"


def is_plain(name: str) -> bool:
    """Whether a name needs no prefix: it is not a keyword, and does not look like a macro or a prefixed field.

    >>> [name for name in ("x", "T", "int", "GPIO", "_x", "v_x", "I", "Dh", "a b") if is_plain(name)]
    ['x', 'T', 'Dh']
    """
    is_usable = len(name) <= _LONGEST and _IDENTIFIER.fullmatch(name) is not None and "__" not in name
    return is_usable and name not in _TAKEN and not name.startswith(("_", "s_", "v_")) and _is_no_macro(name)


def _is_no_macro(name: str) -> bool:
    """Macros are in capitals; a single letter, common for sizes, does not count."""
    return len(name) == 1 or name.upper() != name


@dataclass(frozen=True)
class InterfaceNames:
    """The fields of a program's interface, and the dynamic sizes that its inputs and outputs have."""

    sizes: Mapping[str, str]
    """The context fields of all dynamic sizes; always prefixed, as a context has fields of its own."""
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    input_sizes: Mapping[str, str]
    """The fields of the inputs' sizes."""
    output_sizes: Mapping[str, str]


def names_of(program: Program) -> InterfaceNames:
    """The interface names of a program."""
    sizes = {size: field("s_", size, place) for place, size in enumerate(program.sizes)}
    sizes |= {size: f"s_{size}" for size in program.sizes if not program.is_named(size)}
    taken = {*program.inputs, *program.outputs}
    public = {size: size if is_plain(size) and size not in taken else own for size, own in sizes.items()}
    return InterfaceNames(
        sizes,
        _tensors(program.inputs),
        _tensors(program.outputs),
        {size: public[size] for size in _sizes_of(program.inputs.values())},
        {size: public[size] for size in _sizes_of(program.outputs.values())},
    )


def _tensors(values: Iterable[str]) -> dict[str, str]:
    return {key: key if is_plain(key) else field("v_", key, place) for place, key in enumerate(values)}


def _sizes_of(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(sorted({size for value in values for extent in value.shape for size in sizes_in(extent)}))
