"""The report on a quantized graph: text for people, JSON for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from openinfer.errors import counted
from openinfer.quantizing.errors_of import LayerError, SignalError, finite
from openinfer.quantizing.sites import FloatLayer

POOR_DECIBELS = 20.0
"""Below this a layer loses a tenth of its signal to its own rounding: better left in floats."""


@dataclass(frozen=True)
class OutputError:
    """How far an output is from that of the float graph; for integers, how many elements are equal."""

    name: str
    deviation: SignalError | None
    equal: int = 0
    count: int = 0
    least: float = 1.0
    """The cosine of the worst sample."""

    def facts(self) -> dict[str, Any]:
        """The error as plain values."""
        if self.deviation is None:
            return {"output": self.name, "equal": self.equal, "count": self.count}
        decibels, cosine = finite(self.deviation.decibels), self.deviation.cosine
        return {"output": self.name, "db": decibels, "cosine": cosine, "least_cosine": self.least}

    def __str__(self) -> str:
        if self.deviation is None:
            return f"{self.name}: {self.equal} of {self.count} equal"
        decibels, cosine = _decibels(self.deviation.decibels), f"{self.deviation.cosine:.5f}"
        return f"{self.name}: {decibels} dB, cosine {cosine}, {self.least:.5f} for the worst sample"


@dataclass(frozen=True)
class Accuracy:
    """The number of correct predictions, before and after."""

    output: str
    before: int
    after: int
    count: int

    def facts(self) -> dict[str, Any]:
        """Counts as plain values."""
        return {"output": self.output, "before": self.before, "after": self.after, "count": self.count}


@dataclass(frozen=True)
class QuantizeReport:
    """Everything known about a quantized graph."""

    graph: str
    model: str
    samples: int
    layers: Sequence[LayerError]
    floats: Sequence[FloatLayer]
    outputs: Sequence[OutputError]
    bytes_before: int
    bytes_after: int
    accuracy: Accuracy | None = None

    @property
    def least_cosine(self) -> float:
        """The lowest cosine of an output for a sample."""
        return min((one.least for one in self.outputs if one.deviation is not None), default=1.0)

    def worst_layer(self) -> LayerError | None:
        """The layer that loses most by its own rounding."""
        return min(self.layers, key=_own_decibels, default=None)

    @property
    def keep(self) -> list[str]:
        """Layers that are better left in floats, worst first."""
        poor = sorted((one for one in self.layers if one.alone.decibels < POOR_DECIBELS), key=_own_decibels)
        return list(dict.fromkeys(one.label.partition("[")[0] for one in poor))

    def facts(self) -> dict[str, Any]:
        """The report as plain values, for ``--json``."""
        return {
            "graph": self.graph,
            "model": self.model,
            "samples": self.samples,
            "layers": [one.facts() for one in self.layers],
            "floats": [
                {"layer": one.label, "op": one.op, "node": one.node, "reason": one.reason} for one in self.floats
            ],
            "outputs": [one.facts() for one in self.outputs],
            "keep": self.keep,
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "accuracy": None if self.accuracy is None else self.accuracy.facts(),
        }

    def lines(self) -> Iterator[str]:
        """The report as text."""
        if self.layers:
            yield from _table(self.layers)
            yield ""
        for one in self.floats:
            yield f"in floats: {one.op} {one.label}: {one.reason}"
        for output in self.outputs:
            yield str(output)
        if self.accuracy is not None:
            own = self.accuracy
            before, after = (_share(right, own.count) for right in (own.before, own.after))
            yield f"{own.output}: {before} right in floats, {after} in integers"
        if self.keep:
            options = " ".join(f"--keep {name}" for name in self.keep)
            yield f"layers that lose most, better left in floats: {options}"
        layers = counted(len({one.node for one in self.layers}), "layer")
        yield f"{layers} quantized with {counted(self.samples, 'sample')}" if self.samples else "weights quantized"
        yield f"weights: {self.bytes_before:,} bytes before, {self.bytes_after:,} after"
        yield f"graph: {self.graph}"
        yield f"model: {self.model}"


def _own_decibels(error: LayerError) -> float:
    return error.alone.decibels


def _decibels(value: float) -> str:
    return "exact" if value == inf else f"{value:.1f}"


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({count / max(of, 1):.1%})"


def _table(layers: Sequence[LayerError]) -> Iterator[str]:
    is_smoothed = any(one.smoothing for one in layers)
    rows: list[tuple[str, ...]] = [("layer", "op", "alone dB", "dB", "cosine", *(["smoothing"] * is_smoothed))]
    for one in layers:
        decibels = (_decibels(error.decibels) for error in (one.alone, one.together))
        smoothing = [f"{one.smoothing:.2f}" if one.smoothing else "-"] * is_smoothed
        rows.append((one.label, one.op, *decibels, f"{one.together.cosine:.5f}", *smoothing))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells: Mapping[int, str] = dict(enumerate(row))
        yield "  ".join(
            cell.ljust(widths[at]) if at < 2 else cell.rjust(widths[at]) for at, cell in cells.items()
        ).rstrip()
