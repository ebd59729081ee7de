"""The roofline model: the peak speed of a machine, against which kernels are compared."""

from dataclasses import dataclass
from typing import Literal

from openinfer.synth.program.cost import Cost

Bound = Literal["compute", "memory"]


@dataclass(frozen=True)
class Roofline:
    """The peak rates of a machine per second: f32 operations, and bytes read.

    ``nbytes`` is the working set of the bandwidth measurement, which determines the cache level or memory it comes
    from.

    >>> slow = Roofline(operations=1e9, bandwidth=1e9, threads=1, nbytes=4096)
    >>> slow.seconds(Cost(2_000_000, 500_000, 500_000)), slow.bound(Cost(2_000_000, 500_000, 500_000))
    (0.002, 'compute')
    """

    operations: float
    bandwidth: float
    threads: int
    nbytes: int

    def seconds(self, cost: Cost) -> float:
        """The roofline time of a cost."""
        return max(cost.operations / self.operations, cost.nbytes / self.bandwidth)

    def bound(self, cost: Cost) -> Bound:
        """The limiting resource."""
        return "compute" if cost.operations / self.operations > cost.nbytes / self.bandwidth else "memory"

    def best(self, other: "Roofline") -> "Roofline":
        """The best of two measurements."""
        most = max(self.operations, other.operations), max(self.bandwidth, other.bandwidth)
        return Roofline(*most, self.threads, self.nbytes)
