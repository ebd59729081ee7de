"""The input and the output of a fusion rule."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from openinfer.loops.ir import Buffer, Kernel, Load, Scalar, scalars, visit, walk
from openinfer.synth.passes.fuse.naming import joined_name
from openinfer.synth.program.refusal import Refusal


@dataclass(frozen=True)
class Pair:
    """A producer and a consumer of its result, with no name in common."""

    producer: Kernel
    consumer: Kernel
    between: Buffer
    """The buffer between them, under the consumer's name."""
    is_slice: bool
    """Whether the producer reads a slice of a table."""
    is_weight: bool
    """Whether the producer reads one model tensor and nothing else."""
    max_recomputed: int
    """The most operations per element to recompute at each read."""

    @property
    def name(self) -> str:
        """The name of the fused kernel."""
        return joined_name(self.producer.name, self.consumer.name)

    @property
    def reads(self) -> tuple[Load, ...]:
        """The consumer's loads from the value between them."""
        return tuple(loads(self.consumer, self.between))


FusionRule = Callable[[Pair], Kernel | Refusal]
"""Fuses two kernels, or says why the rule does not apply."""

MAX_PARTS = 2000
"""The largest expression that is worth the memory it saves."""
TOO_LARGE = Refusal("an element would be an expression of more than {} parts", (MAX_PARTS,))
UNUSED = Refusal("the reader uses no element of the value")
PRODUCER_NOT_POINTWISE = Refusal("the producer does not compute its elements one by one")
READER_NOT_POINTWISE = Refusal("the reader does not compute its elements one by one")


def values(kernel: Kernel) -> Iterator[Scalar]:
    """The expressions of a kernel."""
    for statement in walk(kernel.body):
        yield from scalars(statement)


def loads(kernel: Kernel, buffer: Buffer) -> Iterator[Load]:
    """The loads of a buffer in a kernel's expressions."""
    return (one for value in values(kernel) for one in visit(value) if isinstance(one, Load) and one.buffer == buffer)


def is_read(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether a kernel's expressions load from a buffer."""
    return next(loads(kernel, buffer), None) is not None
