"""How fast a machine is at best: the roofline that kernels are held against."""

from dataclasses import dataclass
from typing import Literal

from openinfer.synth.program.cost import Cost

Bound = Literal["compute", "memory"]


@dataclass(frozen=True)
class Roofline:
    """What a machine does in a second at best: operations on f32, and bytes that it reads.

    ``nbytes`` are read repeatedly, so that they come from the nearest memory that holds them: a cache, or main memory.

    >>> slow = Roofline(operations=1e9, bandwidth=1e9, threads=1, nbytes=4096)
    >>> slow.seconds(Cost(2_000_000, 500_000, 500_000)), slow.bound(Cost(2_000_000, 500_000, 500_000))
    (0.002, 'compute')
    """

    operations: float
    bandwidth: float
    threads: int
    nbytes: int

    def seconds(self, cost: Cost) -> float:
        """The least time for that many operations and bytes."""
        return max(cost.operations / self.operations, cost.nbytes / self.bandwidth)

    def bound(self, cost: Cost) -> Bound:
        """Which of the two is the limit."""
        return "compute" if cost.operations / self.operations > cost.nbytes / self.bandwidth else "memory"

    def best(self, other: "Roofline") -> "Roofline":
        """The best of two measurements."""
        most = max(self.operations, other.operations), max(self.bandwidth, other.bandwidth)
        return Roofline(*most, self.threads, self.nbytes)
