"""``Profile``: the times of steps and their kernels, compared with what the machine can do.

Only computes with times and costs; measuring happens elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np

from openinfer.synth.program.cost import Cost
from openinfer.synth.report.roofline import Bound, Roofline


@dataclass(frozen=True)
class NodePlace:
    """A node of the graph: its index, its text, and its source line."""

    index: int
    text: str
    line: int | None

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line is not None else f"node {self.index}"
        return f"{place}: {self.text}"


@dataclass(frozen=True)
class Times:
    """The durations of repeated runs, in seconds."""

    all: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return float(np.median(self.all))

    @property
    def least(self) -> float:
        """The minimum."""
        return min(self.all)

    @property
    def middle(self) -> tuple[float, float]:
        """The first and third quartiles.

        >>> Times((4.0, 1.0, 2.0, 3.0, 9.0)).middle
        (2.0, 4.0)
        """
        low, high = np.percentile(self.all, (25, 75))
        return float(low), float(high)

    def facts(self) -> dict[str, Any]:
        """The times as plain values."""
        return {"median": self.median, "quartiles": list(self.middle), "least": self.least, "all": list(self.all)}


@dataclass(frozen=True)
class KernelProfile:
    """The total time of a kernel's calls in each step."""

    name: str
    """The name of the function in the source."""
    nodes: tuple[NodePlace, ...]
    calls: int
    """The number of calls in a step."""
    threads: int
    """The number of slices that run in parallel."""
    cost: Cost
    """The cost of all these calls, at the sizes that the steps had."""
    times: Times
    shares: tuple[float, ...]
    """Their share of the time of each step."""
    roofline: Roofline

    @property
    def seconds(self) -> float:
        """The median time per step."""
        return self.times.median

    @property
    def share(self) -> float:
        """The median share of a step's time."""
        return float(np.median(self.shares))

    @property
    def operations_per_second(self) -> float:
        """The compute throughput."""
        return self.cost.operations / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """The throughput of the bytes that it must at least move."""
        return self.cost.nbytes / self.seconds if self.seconds else 0.0

    @property
    def bound(self) -> Bound:
        """The limiting resource at the roofline."""
        return self.roofline.bound(self.cost)

    @property
    def efficiency(self) -> float:
        """Roofline time over actual time: 1 is the roofline. Operands in a nearer cache can exceed it."""
        return self.roofline.seconds(self.cost) / self.seconds if self.seconds else 0.0

    @property
    def gain(self) -> float:
        """The seconds that a step would save if this kernel ran at its roofline."""
        return max(self.seconds - self.roofline.seconds(self.cost), 0.0)

    def facts(self) -> dict[str, Any]:
        """The kernel as plain values."""
        return {
            "name": self.name,
            "nodes": [{"index": one.index, "text": one.text, "line": one.line} for one in self.nodes],
            "calls": self.calls,
            "threads": self.threads,
            "seconds": self.times.facts(),
            "share": self.share,
            "operations": self.cost.operations,
            "bytes_read": self.cost.read,
            "bytes_written": self.cost.written,
            "operations_per_second": self.operations_per_second,
            "bytes_per_second": self.bytes_per_second,
            "bound": self.bound,
            "roofline_seconds": self.roofline.seconds(self.cost),
            "roofline_share": self.efficiency,
            "gain_seconds": self.gain,
        }


@dataclass(frozen=True)
class Profile:
    """A breakdown of the time of a step. All steps have the same inputs and start from the same state."""

    name: str
    device: str
    isa: str
    roofline: Roofline
    kernels: tuple[KernelProfile, ...]
    """Every kernel function, over all its call sites."""
    calls: tuple[KernelProfile, ...]
    """Every call site, which may be in a loop."""
    timed: Times
    """Whole steps with kernel timers."""
    untimed: Times
    """Whole steps without kernel timers."""
    restores_state: bool
    """Whether there is persistent memory, which was restored before each step."""

    @property
    def overhead(self) -> float:
        """The relative overhead of timing, as the median over pairs of consecutive steps."""
        pairs = zip(self.timed.all, self.untimed.all, strict=True)
        return float(np.median([one / other for one, other in pairs])) - 1.0

    @property
    def between(self) -> float:
        """The seconds of a step outside of kernels: copies, tables, control flow, and the timers."""
        inside = (fsum(parts) for parts in zip(*(one.times.all for one in self.calls), strict=True))
        if not self.calls:
            return self.timed.median
        return float(np.median([whole - part for whole, part in zip(self.timed.all, inside, strict=True)]))

    @property
    def first(self) -> KernelProfile | None:
        """The kernel to look at first, with the most time to gain. None if every kernel is at its roofline."""
        found = max(self.kernels, key=lambda one: one.gain, default=None)
        return found if found is not None and found.gain > 0 else None

    def facts(self) -> dict[str, Any]:
        """The profile as plain values."""
        return {
            "schema": "openinfer.profile",
            "version": 1,
            "name": self.name,
            "device": self.device,
            "isa": self.isa,
            "threads": self.roofline.threads,
            "restores_state": self.restores_state,
            "roofline": {
                "operations_per_second": self.roofline.operations,
                "bytes_per_second": self.roofline.bandwidth,
                "bytes": self.roofline.nbytes,
            },
            "untimed_seconds": self.untimed.facts(),
            "timed_seconds": self.timed.facts(),
            "overhead": self.overhead,
            "between_seconds": self.between,
            "first": None if self.first is None else self.first.name,
            "kernels": [one.facts() for one in self.kernels],
            "calls": [one.facts() for one in self.calls],
        }


def joined(calls: Sequence[KernelProfile]) -> KernelProfile:
    """Merge several calls of the same kernel: sums their times in each step."""
    first = calls[0]
    nodes = {node.index: node for one in calls for node in one.nodes}
    return KernelProfile(
        name=first.name,
        nodes=tuple(nodes[index] for index in sorted(nodes)),
        calls=sum(one.calls for one in calls),
        threads=first.threads,
        cost=_total(one.cost for one in calls),
        times=Times(tuple(map(fsum, zip(*(one.times.all for one in calls), strict=True)))),
        shares=tuple(map(fsum, zip(*(one.shares for one in calls), strict=True))),
        roofline=first.roofline,
    )


def _total(costs: Iterable[Cost]) -> Cost:
    found = tuple(costs)
    return Cost(sum(one.operations for one in found), sum(one.read for one in found), sum(one.written for one in found))
