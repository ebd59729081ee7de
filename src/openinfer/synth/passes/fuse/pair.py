"""What a fusion rule is given, and what it answers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from openinfer.loops.ir import Buffer, Kernel, Load, Scalar, scalars, visit, walk
from openinfer.synth.passes.fuse.naming import joined_name
from openinfer.synth.program.refusal import Refusal


@dataclass(frozen=True)
class Pair:
    """Two kernels with no name in common, of which one reads what the other writes."""

    producer: Kernel
    consumer: Kernel
    between: Buffer
    """What is written and read, as the consumer calls it."""
    is_slice: bool
    """Whether the producer reads a slice of a table."""
    is_weight: bool
    """Whether the producer reads a tensor of the model, and nothing else."""
    max_recomputed: int
    """The most operations of an element that is recomputed wherever it is read."""

    @property
    def name(self) -> str:
        """The name of a kernel that computes what both do."""
        return joined_name(self.producer.name, self.consumer.name)

    @property
    def reads(self) -> tuple[Load, ...]:
        """The elements of the value between them that the consumer reads in expressions."""
        return tuple(loads(self.consumer, self.between))


FusionRule = Callable[[Pair], Kernel | Refusal]
"""Two kernels as one, or why the rule does not apply."""

MAX_PARTS = 2000
"""A larger expression is not worth the memory it saves."""
TOO_LARGE = Refusal("an element would be an expression of more than {} parts", (MAX_PARTS,))
UNUSED = Refusal("the reader uses no element of the value")
PRODUCER_NOT_POINTWISE = Refusal("the producer does not compute its elements one by one")
READER_NOT_POINTWISE = Refusal("the reader does not compute its elements one by one")


def values(kernel: Kernel) -> Iterator[Scalar]:
    """The expressions of a kernel."""
    for statement in walk(kernel.body):
        yield from scalars(statement)


def loads(kernel: Kernel, buffer: Buffer) -> Iterator[Load]:
    """The elements of a buffer that a kernel reads in expressions."""
    return (one for value in values(kernel) for one in visit(value) if isinstance(one, Load) and one.buffer == buffer)


def is_read(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether a kernel reads an element of a buffer in an expression."""
    return next(loads(kernel, buffer), None) is not None
