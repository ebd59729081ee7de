"""``Dialect``: how a C-family language says what the loop IR means. Data and small templates; nothing depends on an op.

The printers of this folder know operators, parentheses and statements, which all these languages share. Every word in
which they differ is a field of the record, so that another language is another record and no other printer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import INDEX, DType
from openinfer.loops.ir import Buffer, Space
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.support import Support


@dataclass(frozen=True)
class KernelSignature:
    """A kernel as a function, without its body: what a language makes its head of."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    """The dynamic sizes it takes."""
    narrow_sizes: frozenset[str]
    """Those of the sizes that have the narrower type of positions."""
    unused: tuple[str, ...]
    """The names of the parameters that the body does not touch."""
    can_fail: bool
    parts: int
    """In how many parts it can run at the same time."""

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """All buffers, in the order of the parameters."""
        return (*self.inputs, *self.outputs, *self.scratch)


@dataclass(frozen=True)
class Framed:
    """A kernel as a function: its definition, and what announces it to other files."""

    definition: str
    declaration: str


@dataclass(frozen=True)
class Own:
    """What a language has itself for an op: text over operands ``{0}`` and ``{1}``, and how tightly it binds."""

    text: str
    takes: Rank = Rank.CHOICE
    """How tightly operands bind at least, where they stand there without parentheses."""
    rank: Rank = Rank.ATOM
    need: str = ""
    """A support function that the text calls."""


@dataclass(frozen=True)
class Dialect:
    """The words of one language. Templates have named fields, as in ``str.format``."""

    types: Mapping[str, str]
    """Compute dtypes by name, to the type of a value; ``index``, to that of a position."""
    stored: Mapping[str, str]
    """All dtypes by name, to the type of a buffer's elements; packed ones, to what holds several."""
    literal: Callable[[float, DType], str]
    """A number that reads back exactly."""
    frame: Callable[["Dialect", KernelSignature, Sequence[str]], Framed]
    """A kernel's head around the lines of its body."""
    support: Support
    """The functions that the language lacks."""
    functions: Mapping[tuple[str, str], Own] = field(default_factory=dict)
    """Builtins of the language, by op and dtype. Everything else that is not an operator is a support function."""
    about: Mapping[tuple[str, str], Own] = field(default_factory=dict)
    """What it has for parts of results that need not be right to the last bit, by op and the dtype of the result."""
    special: Callable[[float, DType], str | None] = lambda _value, _dtype: None
    """The constant of support code that a number is spelled with, if it is."""
    cast: str = "({type}){value}"
    cast_takes: Rank = Rank.UNARY
    """How tightly what is cast binds at least, where it stands there without parentheses."""
    casts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Support functions that convert, by the dtypes from and to which they do, where a cast would not."""
    small_to_float: bool = True
    """Whether integers of 8 and 16 bits that lie in memory become floats at once, or have 32 bits in between."""
    zeros: Mapping[str, str] = field(default_factory=dict)
    """Support code for a 0 by its dtype, where compilers take liberties with arithmetic on a constant one."""
    exact: str = ""
    """What stands before the declaration of a float whose value must be computed as it is written."""
    constant: str = "const {type} {name}"
    variable: str = "{type} {name}"
    element: str = "{name}[{at}]"
    own_element: str = "{name}[{at}]"
    """An element of memory that a thread keeps for itself, or shares with those of its group."""
    store: Callable[[DType, str, str], str] = "{1} = {2};".format
    """A statement that puts a value of a dtype into an element, where that needs no function."""
    packed_load: str = "{function}({name}, {at})"
    packed_store: str = "{function}({name}, {at}, {value})"
    fail: str = "return 1; /* {reason} */"
    known_outcomes: bool = False
    """Whether a comparison whose outcome is known may be that: compilers of C warn of conditions that never change."""
    saturates: bool = False
    """Whether integers are limited to a number of bits by an instruction, which the support code has a name for."""
    rolled: str = ""
    """A line before loops with choices in them that must not be unrolled, where a compiler gets those wrong."""
    negative_remainders: bool = True
    """Whether ``%`` is what it is in C where a number is negative; else that is left to a function."""
    index_dtype: str = "i64"
    """The dtype whose functions are those of positions."""
    narrow: str | None = None
    """A type of 32 bits for positions that are proved to fit it, where the language is written for such a processor."""
    reserved: frozenset[str] = frozenset()
    """Names that no buffer may have, beside those that templates bring."""

    def type_of(self, dtype: DType) -> str:
        """The type of a value in a compute dtype."""
        return self.types[dtype.compute.name]

    def stored_type(self, dtype: DType) -> str:
        """The type of a buffer's elements; of what holds them, where several share a byte."""
        return self.stored[dtype.name]

    @property
    def index(self) -> str:
        """The type of positions."""
        return self.types["index"]

    def size_type(self, kernel: KernelSignature, size: str) -> str:
        """The type of a dynamic size that a kernel takes."""
        return self.narrow or self.index if size in kernel.narrow_sizes else self.index

    def kind_of(self, dtype: DType) -> str:
        """The dtype whose functions are those of another: positions are integers."""
        return self.index_dtype if dtype is INDEX else dtype.name

    def converted(self, dtype: DType, value: str) -> str:
        """A value in another type; not in parentheses."""
        return self.cast.format(type=self.type_of(dtype), value=value)

    def place(self, buffer: Buffer, name: str, at: str) -> str:
        """An element of a buffer, which is called so."""
        is_own = buffer.space in (Space.OWN, Space.GROUP)
        return (self.own_element if is_own else self.element).format(name=name, at=at)
