"""Every op with a dynamic axis, from the records' own cases: an extent becomes a size, and steps run at all its values.

``python -m tests.synth.dynamic_axes [OP ...]`` runs all of them; the tests run a sample.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from tests.synth.flags import UNDEFINED
from tests.synth.in_c import call_of, cases_of

from openinfer import ExecutionError, GraphError, Simulator, Synthesizer, graph
from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code
from openinfer.ops import OPS, Array, Case

FLAGS = ("-std=c11", "-O0", "-ffp-contract=off", *UNDEFINED)
MOST = 9
"""Extents up to here become sizes."""


@dataclass(frozen=True)
class Trial:
    """A graph of one op, and its inputs at the bound; ``axes`` says which of theirs have the size."""

    op: str
    text: str
    arrays: Mapping[str, Array]
    axes: Mapping[str, tuple[int, ...]]
    bound: int

    def inputs(self, size: int) -> dict[str, Array]:
        """The inputs of a step with this size."""
        return {
            name: array[tuple(slice(size) if axis in self.axes[name] else slice(None) for axis in range(array.ndim))]
            for name, array in self.arrays.items()
        }


def trials(op: str, dtype: DType, most: int | None = None) -> Iterator[Trial]:
    """The trials of an op: where an extent occurs, at all places and at each alone."""
    seen: set[str] = set()

    def found() -> Iterator[Trial]:
        for case in cases_of(op, dtype):
            places = [
                (slot, axis, extent)
                for slot, array in enumerate(case.arrays)
                if array is not None
                for axis, extent in enumerate(array.shape)
                if 2 <= extent <= MOST
            ]
            for wanted in {one[2]: None for one in places}:
                same = [one[:2] for one in places if one[2] == wanted]
                for chosen in [same] if len(same) == 1 else [same, *([one] for one in same)]:
                    made = _trial(op, case, chosen, wanted)
                    if made is not None and made.text not in seen:
                        seen.add(made.text)
                        yield made

    return islice(found(), most)


def _trial(op: str, case: Case, chosen: list[tuple[int, int]], bound: int) -> Trial | None:
    params = [f"{name}={text}" for name, value in case.params.items() if (text := _spelled(value)) is not None]
    if len(params) < len(case.params):
        return None
    arrays: dict[str, Array] = {}
    axes: dict[str, tuple[int, ...]] = {}
    declared: list[str] = []
    names: list[str] = []
    for slot, (array, dtype) in enumerate(zip(case.arrays, case.dtypes, strict=True)):
        if array is None or dtype is None:
            continue
        name = f"v{slot}"
        axes[name] = tuple(axis for own, axis in chosen if own == slot)
        dims = ["T" if axis in axes[name] else str(extent) for axis, extent in enumerate(array.shape)]
        arrays[name] = array
        declared.append(f"{name}: {dtype.name}[{', '.join(dims)}];")
        is_next = slot == len(names) and (not names or "=" not in names[-1])
        names.append(name if is_next else f"{OPS[op].signature.inputs[slot].name}={name}")
    results = _results(op, case)
    text = (
        f"sizes {{ T <= {bound}; }} dynamic {{ {' '.join(declared)} }} block entry {{"
        f" {', '.join(results)} = op {op}({', '.join([*names, *params])}); return {', '.join(results)}; }}"
    )
    return Trial(op, text, arrays, axes, bound)


def _results(op: str, case: Case) -> list[str]:
    return [f"y{place}" for place in range(len(call_of(OPS[op], case).outputs))]


def _spelled(value: Any) -> str | None:
    """A parameter in source text."""
    match value:
        case bool():
            return str(value).lower()
        case DType():
            return value.name
        case int() | float():
            return repr(value)
        case str():
            return f'"{value}"'
        case tuple() | list():
            parts = [_spelled(one) for one in value]
            return None if None in parts else f"[{', '.join(map(str, parts))}]"
        case _:
            return None


def problems(trial: Trial) -> list[str]:
    """Sizes at which compiled code does not do what the simulator does; what cannot be bound is no trial."""
    try:
        ready = Simulator().with_trace("off").make_executor(graph(trial.text))
    except GraphError:
        return ["unbound"]
    try:
        module = Synthesizer(name="net").synthesize(None, graph(trial.text)).build("gcc", FLAGS)
    except GraphError as error:
        return [f"refused: {error.diagnostics[0].message}"]
    found = []
    for size in range(trial.bound + 1):
        wanted, own = (_outcome(one, trial.inputs(size)) for one in (ready, module))
        if not _same(wanted, own):
            found.append(f"T={size}: {_short(wanted)} but {_short(own)}")
    return found


def _outcome(one: Any, inputs: Mapping[str, Array]) -> Code | list[Array]:
    try:
        given = one(inputs)
    except ExecutionError as error:
        one.reset()
        return error.code
    return list(given) if isinstance(given, tuple) else [given]


def _same(one: Code | list[Array], other: Code | list[Array]) -> bool:
    if isinstance(one, Code) or isinstance(other, Code):
        return one == other
    return all(
        left.shape == right.shape
        and np.allclose(left.astype(np.float64), right.astype(np.float64), 2e-3, 1e-3, equal_nan=True)
        for left, right in zip(one, other, strict=True)
    )


def _short(outcome: Code | list[Array]) -> str:
    return str(outcome) if isinstance(outcome, Code) else str([list(one.shape) for one in outcome])


def main() -> None:
    counts: dict[str, int] = {}
    for op in sys.argv[1:] or sorted({record.name for record in OPS.values()}):
        dtype = next(one for one in (DTYPES["f32"], DTYPES["i32"], *DTYPES.values()) if one in OPS[op].dtypes)
        for trial in trials(op, dtype, 12):
            found = problems(trial)
            kind = "right" if not found else found[0].partition(":")[0] if found[0][:1] in "ur" else "WRONG"
            counts[kind] = counts.get(kind, 0) + 1
            if kind not in ("right", "unbound"):
                print(op, trial.text, *found[:4], sep="\n    ", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
