"""Statements of threads: they wait for each other, exchange values, and access several elements at once.

They complement the statements of ``openinfer.loops.ir``.
"""

from dataclasses import dataclass

from openinfer.loops.scalar import Buffer, Scalar, ScalarVar


@dataclass(frozen=True)
class GroupBarrier:
    """All threads of a group reach this point before any continues; they then see each other's writes."""

    is_shared: bool = False
    """Whether only writes to group memory need to become visible."""


@dataclass(frozen=True)
class TeamWords:
    """Words of memory, apart from all buffers, through which the groups of teams exchange values.

    Each row has words of its own, which are all zero before a launch, and after it.
    """

    rows: int
    groups: int
    """The groups of a team, which share a row."""
    count: int
    """The words of a row."""


@dataclass(frozen=True)
class Exchange:
    """The groups of a team exchange values, which are the same in all threads of a group, bit for bit.

    All threads of a group reach this point before any continues; element ``i`` of ``memory``, which belongs to the
    group, then has the value of group ``i``. Other memory that groups write stays invisible to the others. No thread
    touches ``memory`` between the barrier before it and this point.
    """

    values: tuple[Scalar, ...]
    memory: tuple[Buffer, ...]
    """For each value."""
    row: Scalar
    words: TeamWords
    place: int
    """The first word, among those of the row, that is used here and nowhere else."""


@dataclass(frozen=True)
class Leave:
    """A group of a team needs the words of a row no longer; the last one zeroes them."""

    row: Scalar
    words: TeamWords


@dataclass(frozen=True)
class Ready:
    """From here on, a launch may touch what earlier ones have written; before, it only reads what none of them writes.

    Every thread reaches it once.
    """


@dataclass(frozen=True)
class Unfailed:
    """Ends the launch if an earlier one has failed; without this statement, a launch checks that first."""


@dataclass(frozen=True)
class Combine:
    """Reduces variables across adjacent threads of a subgroup: all of them get the same values, bit for bit.

    ``values`` combine two threads: ``variables`` are those of the thread that comes first, ``others`` those of the
    second. Threads combine with the one whose number differs in the lowest bit, then in the next, up to ``width``.
    """

    variables: tuple[ScalarVar, ...]
    others: tuple[ScalarVar, ...]
    values: tuple[Scalar, ...]
    width: int
    """The number of threads, a power of two; the first thread's number is a multiple of it."""
    before: tuple[ScalarVar, ...] = ()
    """Variables that get what all threads before have in ``variables``, combined, in front of their own value."""


@dataclass(frozen=True)
class WideLoad:
    """Loads adjacent elements in one access, starting at an index, and names their values.

    The access covers whole words, and the offset of the first element is a multiple of their count. If the variables
    are u32 and the elements are not, they are the words, with the first element in the lowest bits of the first.
    """

    variables: tuple[ScalarVar, ...]
    buffer: Buffer
    index: tuple[Scalar, ...]
    is_ahead: bool = False
    """Whether the load must be issued before ``Ready``; a compiler would move it to where its values are needed."""

    @property
    def has_words(self) -> bool:
        """Whether the variables are words."""
        return self.variables[0].dtype.name == "u32" and self.buffer.dtype.compute.name != "u32"

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.variables) * 32 // self.buffer.dtype.bits if self.has_words else len(self.variables)


@dataclass(frozen=True)
class WideStore:
    """Stores values in adjacent elements in one access, laid out as for ``WideLoad``."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    values: tuple[Scalar, ...]
    is_near: bool = False
    """Whether values that lie halfway between two of the buffer may become either: they are not exact anyway."""

    @property
    def has_words(self) -> bool:
        """Whether the values are words."""
        return self.values[0].dtype.name == "u32" and self.buffer.dtype.compute.name != "u32"

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.values) * 32 // self.buffer.dtype.bits if self.has_words else len(self.values)
