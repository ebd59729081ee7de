"""Compares two runs: the first event at which their traces differ, and by how much.

Traces are documents written by ``Executor.trace``, read back from JSON; they are untrusted. Tasks of the same name are
compared with each other, so that two schedules of a run count as the same run. Times and uuids are ignored.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Any, Literal

from openinfer.ir.document import Cursor, load_document

What = Literal["structure", "type", "value", "end"]
_TEXTS = ("block_name", "kind", "op_name")
_LISTS = ("params", "output")
_DEEPEST = 8
_COUNTS = ("nan", "inf")
_NUMBERS = ("min", "max", "mean")


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorFacts:
    """What a trace records about an operand or a result; only results have values."""

    name: str
    dtype: str | None
    shape: tuple[int, ...] | None
    digest: str | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    sample: tuple[float, ...] = ()

    @property
    def type_text(self) -> str:
        """Dtype and shape, as in diagnostics."""
        return f"{self.dtype or '?'}{'?' if self.shape is None else list(self.shape)}"


@dataclass(frozen=True)
class TraceEvent:
    """An executed node, with what can be compared."""

    position: int
    node_index: int
    block_name: str
    kind: str
    op_name: str
    params: tuple[str, ...]
    output: tuple[str, ...]
    thread: str
    indices: Mapping[str, int]
    scope: tuple[str, ...]
    attrs: Mapping[str, Any] | None = None
    inputs: tuple[TensorFacts, ...] | None = None
    outputs: tuple[TensorFacts, ...] | None = None
    absent: str | None = None
    """Why the values it wrote are unknown: generated code does not keep all of them."""

    @property
    def title(self) -> str:
        """A description of the node, for people."""
        name = f"op {self.op_name!r}" if self.op_name else self.kind
        at = "".join(f", {index}={value}" for index, value in self.indices.items())
        return f"node {self.node_index} ({name} in block {self.block_name!r}{at})"


Tensors = tuple[TensorFacts, ...] | None


def read_trace(text: str | bytes, name: str) -> list[TraceEvent]:
    """Read the events of a JSON trace; errors point to the place in the document."""
    document = load_document(text, name)
    if isinstance(document.value, dict) and "traceEvents" in document.value:
        document.fail("this trace is for a viewer and cannot be compared", "write it with --format json")
    return [_event(item, position) for position, item in enumerate(document.items())]


def _event(item: Cursor, position: int) -> TraceEvent:
    parts = _parts(item, "node_index", *_TEXTS, *_LISTS)
    indices = {key: cell.integer() for key, cell in _parts(parts["indices"]).items()} if "indices" in parts else {}
    return TraceEvent(
        position=position,
        node_index=parts["node_index"].integer(),
        block_name=parts["block_name"].text(),
        kind=parts["kind"].text(),
        op_name=parts["op_name"].text(),
        params=_texts(parts["params"]),
        output=_texts(parts["output"]),
        thread=parts["thread"].text() if "thread" in parts else "entry",
        indices=indices,
        scope=_texts(parts["scope"]) if "scope" in parts else (),
        attrs={key: _attr(cell) for key, cell in _parts(parts["attrs"]).items()} if "attrs" in parts else None,
        inputs=_tensors(parts, "inputs"),
        outputs=_tensors(parts, "outputs"),
        absent=parts["absent"].text() if "absent" in parts else None,
    )


def _parts(item: Cursor, *required: str) -> dict[str, Cursor]:
    """The members of an object that has the required keys; others, which later versions may add, are ignored."""
    if not isinstance(item.value, dict):
        item.fail(f"expected an object, found a {type(item.value).__name__}")
    for key in required:
        if key not in item.value:
            item.fail(f"the key {key!r} is missing: this is not an event of a trace")
    return {key: item.step(key, value) for key, value in item.value.items()}


def _attr(item: Cursor) -> Any:
    """The value of a parameter: a number, a word, or shallowly nested lists of them."""
    if isinstance(item.value, dict) or item.depth > _DEEPEST:
        item.fail("this is not the value of a parameter")
    return tuple(_attr(cell) for cell in item.items()) if isinstance(item.value, list) else item.value


def _texts(item: Cursor) -> tuple[str, ...]:
    return tuple(cell.text() for cell in item.items())


def _tensors(parts: Mapping[str, Cursor], key: str) -> tuple[TensorFacts, ...] | None:
    return tuple(_tensor(cell) for cell in parts[key].items()) if key in parts else None


def _tensor(item: Cursor) -> TensorFacts:
    parts = _parts(item, "name")
    known = [key for key in (*_NUMBERS, *_COUNTS) if key in parts]
    return TensorFacts(
        parts["name"].text(),
        parts["dtype"].text() if "dtype" in parts else None,
        tuple(cell.integer() for cell in parts["shape"].items()) if "shape" in parts else None,
        parts["digest"].text() if "digest" in parts else None,
        {key: None if parts[key].value is None else parts[key].number() for key in known},
        tuple(cell.number() for cell in parts["sample"].items()) if "sample" in parts else (),
    )


# --- comparing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deviation:
    """A single deviation: its name, and the values in the two traces."""

    name: str
    one: Any
    other: Any
    absolute: float | None = None
    relative: float | None = None

    def __str__(self) -> str:
        text = f"{self.name}: {_shown(self.one)} against {_shown(self.other)}"
        if self.absolute is None or self.relative is None:
            return text
        return f"{text} (by {self.absolute:.6g}, relative {self.relative:.3g})"

    def facts(self) -> dict[str, Any]:
        """The deviation as plain values."""
        by = {} if self.absolute is None else {"absolute": _plain(self.absolute), "relative": _plain(self.relative)}
        return {"name": self.name, "a": _plain(self.one), "b": _plain(self.other), **by}


@dataclass(frozen=True)
class Difference:
    """The first event that differs; one side is None if that run has already ended."""

    what: What
    one: TraceEvent | None
    other: TraceEvent | None
    deviations: tuple[Deviation, ...] = ()

    @property
    def event(self) -> TraceEvent:
        """The event of the first trace or, if there is none, of the second."""
        found = self.one or self.other
        assert found is not None
        return found

    def facts(self) -> dict[str, Any]:
        """The difference as plain values."""
        event = self.event
        return {
            "what": self.what,
            "position": event.position,
            "node_index": event.node_index,
            "block_name": event.block_name,
            "kind": event.kind,
            "op_name": event.op_name,
            "thread": event.thread,
            "indices": dict(event.indices),
            "deviations": [deviation.facts() for deviation in self.deviations],
        }


@dataclass(frozen=True)
class TraceComparison:
    """The result of a comparison: the first difference, if any, and what could be compared."""

    difference: Difference | None
    events: tuple[int, int]
    with_values: bool
    """Whether both traces contain values; traces of level basic do not."""
    absent: tuple[TraceEvent, ...] = ()
    """Events before the difference whose values are missing from one of the traces."""

    def facts(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            "same": self.difference is None,
            "events": list(self.events),
            "compared": "values" if self.with_values else "structure",
            "absent": [
                {"position": one.position, "node_index": one.node_index, "reason": one.absent} for one in self.absent
            ],
            "difference": None if self.difference is None else self.difference.facts(),
        }


def compare(one: Sequence[TraceEvent], other: Sequence[TraceEvent], tolerance: float = 0.0) -> TraceComparison:
    """Find the first event at which two runs differ.

    Without a tolerance, values are equal if all their bits are. With one, they are equal if they contain the same
    number of NaNs and infinities, and each number recorded for them (minimum, maximum, mean, samples) differs by at
    most ``tolerance * max(1, |a|, |b|)``. Values that a trace marks as missing are not a difference: their effects are
    compared at the nodes that read them.
    """
    with_values = _has_values(one) and _has_values(other)
    difference = None
    absent: list[TraceEvent] = []
    for pair in _pairs(one, other):
        difference = _difference(*pair, tolerance)
        if difference is not None:
            break
        absent += [event for event in pair if event is not None and event.absent is not None]
    return TraceComparison(difference, (len(one), len(other)), with_values, tuple(absent))


def _has_values(events: Sequence[TraceEvent]) -> bool:
    return any(event.outputs is not None or event.inputs is not None for event in events) or not events


def _pairs(
    one: Sequence[TraceEvent], other: Sequence[TraceEvent]
) -> Iterator[tuple[TraceEvent | None, TraceEvent | None]]:
    """Matching events, in the order of the first trace: the n-th ones of tasks of the same name."""
    tasks: dict[str, list[TraceEvent]] = defaultdict(list)
    for event in other:
        tasks[event.thread].append(event)
    seen: dict[str, int] = defaultdict(int)
    for event in one:
        number = seen[event.thread]
        seen[event.thread] += 1
        task = tasks[event.thread]
        yield event, task[number] if number < len(task) else None
    for name, task in tasks.items():
        if len(task) > seen[name]:
            yield None, task[seen[name]]


def _difference(one: TraceEvent | None, other: TraceEvent | None, tolerance: float) -> Difference | None:
    if one is None or other is None:
        return Difference("end", one, other)
    stages: tuple[tuple[What, Iterator[Deviation]], ...] = (
        ("structure", _structure(one, other)),
        ("type", _types(one, other)),
        ("value", _values(one, other, tolerance)),
    )
    for what, deviations in stages:
        found = tuple(deviations)
        if found:
            return Difference(what, one, other, found)
    return None


def _structure(one: TraceEvent, other: TraceEvent) -> Iterator[Deviation]:
    for name in ("node_index", *_TEXTS, *_LISTS, "indices", "scope"):
        if getattr(one, name) != getattr(other, name):
            yield Deviation(name, getattr(one, name), getattr(other, name))
    if one.attrs is None or other.attrs is None:
        return
    for key in dict.fromkeys([*one.attrs, *other.attrs]):
        if one.attrs.get(key) != other.attrs.get(key):
            yield Deviation(f"parameter {key}", one.attrs.get(key), other.attrs.get(key))


def _types(one: TraceEvent, other: TraceEvent) -> Iterator[Deviation]:
    results = _known_to_both(one, other)
    for role, mine, theirs in (("input", one.inputs, other.inputs), ("output", *results)):
        if mine is None or theirs is None:
            continue
        if len(mine) != len(theirs):
            yield Deviation(f"number of {role}s", len(mine), len(theirs))
        for left, right in zip(mine, theirs, strict=False):
            if (left.dtype, left.shape) != (right.dtype, right.shape):
                yield Deviation(f"{role} {left.name}", left.type_text, right.type_text)


def _known_to_both(one: TraceEvent, other: TraceEvent) -> tuple[Tensors, Tensors]:
    """The results of two events; if either lacks some of its own, only the results that both have."""
    mine, theirs = one.outputs, other.outputs
    if mine is None or theirs is None or (one.absent is None and other.absent is None):
        return mine, theirs
    names = {left.name for left in mine} & {right.name for right in theirs}
    return tuple(left for left in mine if left.name in names), tuple(one for one in theirs if one.name in names)


def _values(one: TraceEvent, other: TraceEvent, tolerance: float) -> Iterator[Deviation]:
    mine, theirs = _known_to_both(one, other)
    for left, right in zip(mine or (), theirs or (), strict=False):
        if left.digest is None or right.digest is None or left.digest == right.digest:
            continue
        found = [*_statistics(left, right), *_samples(left, right)]
        if tolerance and all(_is_within(deviation, tolerance) for deviation in found):
            continue
        yield Deviation(f"{left.name} digest", left.digest, right.digest)
        yield from found


def _statistics(left: TensorFacts, right: TensorFacts) -> Iterator[Deviation]:
    for key in (*_NUMBERS, *_COUNTS):
        mine, theirs = left.numbers.get(key), right.numbers.get(key)
        if not _is_same(mine, theirs):
            yield _deviation(f"{left.name} {key}", mine, theirs)


def _samples(left: TensorFacts, right: TensorFacts) -> Iterator[Deviation]:
    """The sample that differs most. Samples of the same shape are taken from the same elements."""
    pairs = zip(left.sample, right.sample, strict=False)
    found = [
        _deviation(f"{left.name} sample {position}", mine, theirs)
        for position, (mine, theirs) in enumerate(pairs)
        if not _is_same(mine, theirs)
    ]
    if found:
        yield max(found, key=lambda deviation: inf if deviation.absolute is None else deviation.absolute)


def _is_same(one: float | None, other: float | None) -> bool:
    return one == other or (one is not None and other is not None and isnan(one) and isnan(other))


def _deviation(name: str, one: float | None, other: float | None) -> Deviation:
    if one is None or other is None or not (isfinite(one) and isfinite(other)):
        return Deviation(name, one, other)
    absolute = abs(one - other)
    return Deviation(name, one, other, absolute, absolute / max(abs(one), abs(other)))


def _is_within(deviation: Deviation, tolerance: float) -> bool:
    if deviation.absolute is None or deviation.name.endswith(tuple(f" {key}" for key in _COUNTS)):
        return False
    return deviation.absolute <= tolerance * max(1.0, abs(deviation.one), abs(deviation.other))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "none"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
