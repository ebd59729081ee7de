"""``Dialect``: how a C-family language spells the loop IR. Data and small templates; nothing depends on an op.

The printers in this folder know operators, parentheses and statements, which all these languages share. Everything in
which they differ is a field of the record, so a new language is a new record, not a new printer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import INDEX, DType
from openinfer.loops.ir import Buffer, Space
from openinfer.synth.targets.cstyle.code import Rank
from openinfer.synth.targets.cstyle.support import Support


@dataclass(frozen=True)
class KernelSignature:
    """A kernel function without its body, from which a language makes the head."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    """The dynamic sizes that it takes."""
    narrow_sizes: frozenset[str]
    """The sizes that have the narrower type of positions."""
    unused: tuple[str, ...]
    """The names of the parameters that the body does not use."""
    can_fail: bool
    parts: int
    """The number of parts that can run at the same time."""

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """All buffers, in the order of the parameters."""
        return (*self.inputs, *self.outputs, *self.scratch)


@dataclass(frozen=True)
class Framed:
    """A kernel as a function: its definition, and its declaration for other files."""

    definition: str
    declaration: str


@dataclass(frozen=True)
class Own:
    """A language's own spelling of an op: text over operands ``{0}`` and ``{1}``, and its precedence."""

    text: str
    takes: Rank = Rank.CHOICE
    """The lowest rank of an operand without parentheses."""
    rank: Rank = Rank.ATOM
    need: str = ""
    """A support function that the text calls."""
    types: tuple[str, ...] = ()
    """The dtypes of types that the text itself names."""


@dataclass(frozen=True)
class Dialect:
    """The spelling of one language. Templates have named fields, as in ``str.format``."""

    types: Mapping[str, str]
    """The types of values, by the name of a compute dtype; ``index`` is the type of positions."""
    stored: Mapping[str, str]
    """The types of a buffer's elements, by the name of a dtype; for packed ones, of the unit that holds several."""
    literal: Callable[[float, DType], str]
    """Spells a number so that it reads back exactly."""
    frame: Callable[["Dialect", KernelSignature, Sequence[str]], Framed]
    """Puts a kernel's head around the lines of its body."""
    support: Support
    """The functions that the language lacks."""
    functions: Mapping[tuple[str, str], Own] = field(default_factory=dict)
    """Builtins of the language, by op and dtype. Any other op that is not an operator is a support function."""
    about: Mapping[tuple[str, str], Own] = field(default_factory=dict)
    """Builtins for parts of results that need not be exact to the last bit, by op and the dtype of the result."""
    whole: Callable[[int], str] = str
    """Spells a signed integer of up to 64 bits, other than the least; those of 32 bits as such."""
    special: Callable[[float, DType], str | None] = lambda _value, _dtype: None
    """The support-code constant that spells a number, or None."""
    cast: str = "({type}){value}"
    cast_takes: Rank = Rank.UNARY
    """The lowest rank of a cast's operand without parentheses."""
    casts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Conversion functions in support code, by source and target dtype, where a cast would not convert."""
    wraps: Mapping[str, str] = field(default_factory=dict)
    """How a number wraps to fewer bits than its type has: the dtypes whose values have a wider type."""
    promotes: bool = False
    """Whether arithmetic on integers of fewer than 32 bits is that of ``int``, as in C."""
    zeros: Mapping[str, str] = field(default_factory=dict)
    """Support-code constants for 0, by dtype, where compilers simplify arithmetic on a literal 0 incorrectly."""
    exact: str = ""
    """A qualifier for declarations of floats whose values must be computed exactly as written."""
    constant: str = "const {type} {name}"
    variable: str = "{type} {name}"
    element: str = "{name}[{at}]"
    own_element: str = "{name}[{at}]"
    """An element of memory that is private to a thread, or shared by a group."""
    store: Callable[[DType, str, str], str] = "{1} = {2};".format
    """A statement that stores a value of a dtype in an element, where that needs no function."""
    store_types: Mapping[str, str] = field(default_factory=dict)
    """The dtypes that ``store`` converts to, by the dtype of the element."""
    packed_load: str = "{function}({name}, {at})"
    packed_store: str = "{function}({name}, {at}, {value})"
    fail: str = "return 1; /* {reason} */"
    known_outcomes: bool = False
    """Whether a comparison with a known outcome may be a literal: C compilers warn about constant conditions."""
    saturates: bool = False
    """Whether an instruction saturates integers to a number of bits; support code has a function for it."""
    rolled: str = ""
    """A line before loops with selects that must not be unrolled, where a compiler miscompiles them."""
    negative_remainders: bool = True
    """Whether ``%`` of negative numbers means what it does in C; otherwise a function computes it."""
    index_dtype: str = "i64"
    """The dtype whose support functions positions use."""
    narrow: str | None = None
    """A 32-bit type for positions that are proved to fit it, where the code is for such a processor."""
    reserved: frozenset[str] = frozenset()
    """Names that no buffer may have, besides those that templates introduce."""

    def type_of(self, dtype: DType) -> str:
        """The type of a value in a compute dtype."""
        return self.types[dtype.compute.name]

    def stored_type(self, dtype: DType) -> str:
        """The type of a buffer's elements; for packed elements, of the unit that holds them."""
        return self.stored[dtype.name]

    @property
    def index(self) -> str:
        """The type of positions."""
        return self.types["index"]

    def size_type(self, kernel: KernelSignature, size: str) -> str:
        """The type of a dynamic size that a kernel takes."""
        return self.narrow or self.index if size in kernel.narrow_sizes else self.index

    def kind_of(self, dtype: DType) -> str:
        """The name of the dtype whose functions a dtype uses: positions use those of an integer type."""
        return self.index_dtype if dtype is INDEX else dtype.name

    def converted(self, dtype: DType, value: str) -> str:
        """A cast of a value, without parentheses around it."""
        return self.wraps.get(dtype.compute.name, self.cast).format(type=self.type_of(dtype), value=value)

    def place(self, buffer: Buffer, name: str, at: str) -> str:
        """An element of a buffer that is called ``name``."""
        is_own = buffer.space in (Space.OWN, Space.GROUP)
        return (self.own_element if is_own else self.element).format(name=name, at=at)
