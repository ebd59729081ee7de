"""Generated code against the simulator: op nodes by themselves, and whole graphs step by step.

By themselves: an op's result against the reference on the operands that the code itself computed, under the op's own
tolerance, so that errors of earlier nodes do not count. Whole graphs: what an exact graph computes must agree bit for
bit. For others the simulator runs again and again with every inexact result moved as far as its tolerance allows; how
far results then spread is what the code may be off. Where the moved runs disagree about something discrete (an index,
a branch, a NaN), it is left open.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.differential.building import WatchedModule
from tests.differential.graphs import RandomGraph
from tests.differential.making import Node, Variable
from tests.ops.harness import Question, bounds_of, compare, may_overflow

from openinfer import Executor, Graph, ModelLoader, Simulator, graph
from openinfer.errors import ExecutionError, OpenInferError
from openinfer.ops import Array, Call, OpRecord, ReferenceKernel, complete, infer
from openinfer.ops.agreement import Contract, allowed_error, flushed
from openinfer.ops.numeric import entering
from openinfer.ops.types import TensorType
from openinfer.synth.program.ir import Storage

MOVED_RUNS = 6
_TO_ZERO = {2: 1.0, 4: -1.0}
"""The runs in which results that may be zero are: with the sign that they have, and with the other one."""
_TURNED = -1
"""The number of a run in which only the signs of NaNs are others."""
MORE_RUNS = 60
"""When the first runs do not explain a difference."""
SLACK = 4.0


# --- op nodes by themselves -------------------------------------------------------------------------------------------


def judge_nodes(made: RandomGraph, module: Any, inputs: Mapping[str, Array], *, flushes: bool = False) -> int:
    """Compare every op node that can be seen whole; how many there were."""
    count = 0
    for node in made.nodes:
        if node.condition is not None and bool(inputs[node.condition[0]]) is not node.condition[1]:
            continue
        _judge_node(node, made, module, inputs, flushes=flushes)
        count += 1
    return count


def _judge_node(
    node: Node, made: RandomGraph, module: Any, inputs: Mapping[str, Array], *, flushes: bool = False
) -> None:
    arrays = [None if one is None else _value(one, made, module, inputs) for one in node.operands]
    types = [None if one is None else replace(one.type, dims=()) for one in node.operands]
    record = node.use.record
    reals, kinds = _dequantized(record, arrays, types, node)
    params = {name: _settled(value, module) for name, value in complete(record, node.use.params).items()}
    shapes = tuple(
        None if array is None or kind is None else TensorType(kind.dtype, array.shape, kind.quant)
        for array, kind in zip(reals, kinds, strict=True)
    )
    call = infer(record, Call(shapes, params, node.use.outputs))
    results = tuple(module.fetch(name) for name in node.outputs)
    dtypes = tuple(None if kind is None else kind.dtype for kind in shapes)
    question = Question(record, tuple(reals), dtypes, call.params, call.outputs)
    with np.errstate(all="ignore"):
        wanted = _unrounded(record, call, reals, dtypes)
        try:
            compare(question, results, wanted)
        except AssertionError:
            if not flushes or Contract(record, call, dtypes).disagreement(reals, results, is_flushed=True):
                raise


def _settled(value: Any, module: Any) -> Any:
    from openinfer.loops.dim import at

    return (
        tuple(at(one, module._sizes) if isinstance(one, int) else one for one in value)
        if isinstance(value, tuple)
        else value
    )


def _value(one: Variable, made: RandomGraph, module: Any, inputs: Mapping[str, Array]) -> Array:
    assert one.key is not None
    if one.key in inputs:
        return inputs[one.key]
    if one.key in made.tensors:
        return np.asarray(made.tensors[one.key].values)
    return np.asarray(module.fetch(one.key))


def _dequantized(
    record: OpRecord, arrays: Sequence[Array | None], types: Sequence[TensorType | None], node: Node
) -> tuple[list[Array | None], list[TensorType | None]]:
    """Operands, with quantized weights as the real numbers they stand for."""
    if record.name == "dequantize":
        return list(arrays), list(types)
    reals, kinds = list(arrays), list(types)
    for slot, (array, kind) in enumerate(zip(arrays, types, strict=True)):
        if array is not None and kind is not None and kind.quant is not None:
            own = node.use.types[slot]
            assert own is not None
            reals[slot] = kind.quant.dequantize(array).astype(own.dtype.array)
            kinds[slot] = TensorType(own.dtype, kind.shape)
    return reals, kinds


def _unrounded(record: OpRecord, call: Call, arrays: Sequence[Array | None], dtypes: Sequence[Any]) -> tuple[Any, ...]:
    """What the reference says; of a sum, before it is rounded: within its bound it may round to either neighbour."""
    if record.tolerance.kind != "sum":
        found = ReferenceKernel(record, call, dtypes)(arrays)
    else:
        operands = []
        for array, dtype in zip(arrays, dtypes, strict=True):
            enter = None if dtype is None else entering(dtype)
            operands.append(array if enter is None or array is None else enter(array))
        result = record.reference(call, *operands)
        found = result if isinstance(result, tuple) else (np.asarray(result),)
    return tuple(
        value.astype(np.float64) if kind.dtype.kind == "float" and value.dtype != np.longdouble else value
        for value, kind in zip(found, call.outputs, strict=True)
    )


# --- whole graphs -----------------------------------------------------------------------------------------------------

_Direction = Callable[[tuple[int, ...]], Array]


@dataclass(frozen=True)
class Habits:
    """What a device may do that others do not."""

    flushes: bool = False
    """Take subnormal numbers of f32 for zero."""
    has_own_nans: bool = False
    """Set all bits of a NaN, which a bitcast shows."""


USUAL = Habits()


class _Moved(ReferenceKernel):
    """A kernel whose inexact results are off by as much as they may be."""

    __slots__ = ("_record", "_stored")
    direction: "_Direction"
    flushes: bool
    """Whether subnormal numbers of f32 are zero."""
    has_own_nans: bool
    zero: float | None
    """The factor of results that become zero, whose sign it keeps or changes; None if they stay as they are. A quotient
    of two zeros is anything, and the reciprocal of one is either infinity."""
    turns_nans: bool
    """Whether NaNs have the other sign: which one is nobody's business, but a bitcast shows it."""

    def __init__(self, record: OpRecord, call: Call, stored: Sequence[Any]) -> None:
        super().__init__(record, call, stored)
        self._record = record
        self._stored = stored

    def __call__(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        if self.flushes:
            arrays = [None if one is None else flushed(one) for one in arrays]
        found = self._moved(arrays)
        if self.flushes:
            found = tuple(map(flushed, found))
        if self.turns_nans and not self._record.stored:
            found = tuple(map(_with_turned_nans, found))
        return tuple(map(_with_other_nans, found)) if self.has_own_nans else found

    def _moved(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        tolerance = self._record.tolerance
        if tolerance.kind == "exact" or not any(kind.dtype.kind == "float" for kind in self.call.outputs):
            return super().__call__(arrays)
        operands = [
            array if enter is None or array is None else enter(array)
            for enter, array in zip(self._enter, arrays, strict=True)
        ]
        found = self._reference(self.call, *operands)
        results = found if isinstance(found, tuple) else (found,)
        dtypes = tuple(None if kind is None else kind.dtype for kind in self.call.inputs)
        entered = tuple(
            None if array is None or dtype is None else np.asarray(array)
            for array, dtype in zip(operands, dtypes, strict=True)
        )
        question = Question(self._record, entered, dtypes, self.call.params, self.call.outputs)
        bounds = bounds_of(question)
        moved = []
        for result, kind, leave in zip(results, self.call.outputs, self._leave, strict=True):
            value = np.asarray(result)
            if kind.dtype.kind == "float":
                exact = value.astype(np.longdouble)
                error = allowed_error(tolerance.kind, tolerance.ulps, exact, kind.dtype, bounds)
                signs = type(self).direction(value.shape)
                anything = np.where(signs > 0, np.longdouble(np.inf), np.nan)
                moved_by = np.where(may_overflow(question, kind.dtype, bounds), anything, exact + signs * error)
                if self.zero is not None:
                    moved_by = np.where(abs(exact) <= error, np.copysign(0, self.zero * exact), moved_by)
                # Which sign a NaN has is nobody's business, but a bitcast shows it.
                either = np.where(np.isnan(moved_by), np.copysign(moved_by, signs), moved_by)
                value = either.astype(value.dtype)
            moved.append(value if leave is None else leave(value))
        return tuple(moved)


def _with_turned_nans(array: Array) -> Array:
    if not _is_float(array):
        return array
    codes = array.copy().view(f"u{array.dtype.itemsize}")
    codes[np.isnan(array.astype(np.float64))] ^= codes.dtype.type(1 << (8 * array.dtype.itemsize - 1))
    return codes.view(array.dtype)


def _with_other_nans(array: Array) -> Array:
    """With all bits set in each NaN, as some devices make them; a bitcast shows it."""
    if not _is_float(array):
        return array
    codes = array.copy().view(f"u{array.dtype.itemsize}")
    codes[np.isnan(array.astype(np.float64))] = (1 << (8 * array.dtype.itemsize - 1)) - 1
    return codes.view(array.dtype)


def _direction(run: int) -> _Direction:
    """All up, all down, or each as chance has it, by all or part of the tolerance; none where only NaNs are turned."""
    if run == _TURNED:
        return np.zeros
    rng = np.random.default_rng([5, run])
    if run < 2:
        return lambda shape: np.full(shape, 1.0 - 2 * run)
    if run % 2:
        return lambda shape: rng.choice([-1.0, 1.0], shape)
    return lambda shape: rng.uniform(-2, 2, shape)


@contextmanager
def _moving(run: int, habits: Habits) -> Iterator[None]:
    """Half of the runs have the habits of a device."""
    is_own = run % 4 in (0, 3) and run != _TURNED
    own = {
        "direction": staticmethod(_direction(run)),
        "flushes": habits.flushes and is_own,
        "has_own_nans": habits.has_own_nans and is_own,
        "zero": _TO_ZERO.get(run),
        "turns_nans": run == _TURNED,
        "__slots__": (),
    }
    kind = type("_MovedOnce", (_Moved,), own)
    with patch("openinfer.sim.operations.ReferenceKernel", kind), patch("openinfer.sim.backend.ReferenceKernel", kind):
        yield


def make_executor(made: RandomGraph, model: ModelLoader) -> Executor:
    """The simulator of a graph that returns everything."""
    return Simulator(model).with_trace("off").make_executor(parsed(made.text(made.results)))


@lru_cache(maxsize=4)
def parsed(text: str) -> Graph:
    """The graph of a text, which several runs in a row have."""
    return graph(text)


@dataclass
class Step:
    """What the simulator says of one step: variables by name, or None where it failed."""

    values: dict[str, Array | None] | None
    state: bytes | None


def simulated(
    made: RandomGraph, model: ModelLoader, run: int | None, synced: Sequence[Step] = (), habits: Habits = USUAL
) -> list[Step]:
    """All steps; run number so many is one with moved results. ``synced``: steps whose states are taken over."""
    if run is None:
        return _steps(made, make_executor(made, model), synced)
    with _moving(run, habits):
        return _steps(made, make_executor(made, model), synced)


def is_synced(made: RandomGraph, step: int) -> bool:
    """Whether a step begins with the state that the simulator saved."""
    return (made.seed + step) % 3 == 0 and step > 0


def _steps(made: RandomGraph, executor: Executor, synced: Sequence[Step]) -> list[Step]:
    found: list[Step] = []
    for step, inputs in enumerate(made.inputs):
        if synced and is_synced(made, step) and synced[step - 1].state is not None:
            executor.load_state(synced[step - 1].state)  # type: ignore[arg-type]
        try:
            executor.insert(inputs)  # which fails where a size leaves a dimension no extent
            executor.run_step()
        except OpenInferError:
            executor.reset()
            found.append(Step(None, None))
            continue
        values = {name: fetched(executor, name) for name in (*made.results, *_kept(executor))}
        found.append(Step(values, executor.save_state()))
    return found


def fetched(one: Any, name: str) -> Array | None:
    """A variable, or None where it has none: no node has run that says what a dynamic size of its is."""
    try:
        return np.asarray(one.fetch(name))
    except ExecutionError:
        return None


def _kept(executor: Executor) -> list[str]:
    from openinfer.ir import MemoryKind

    return [name for name, one in executor.bound.vars.items() if one.kind is MemoryKind.PERSISTENT]


class Spread:
    """What a graph may compute: the simulator's own run, and runs with moved results as they are needed."""

    def __init__(self, made: RandomGraph, model: ModelLoader, habits: Habits = USUAL) -> None:
        self._made = made
        self._model = model
        self.habits = habits
        self.own = simulated(made, model, None)
        self._moved: list[list[Step]] = []

    def runs(self, count: int) -> list[list[Step]]:
        while len(self._moved) < count:
            more = simulated(self._made, self._model, len(self._moved), self.own, self.habits)
            self._moved.append(more)
        return self._moved

    @cached_property
    def _turned(self) -> list[Step]:
        return simulated(self._made, self._model, _TURNED, self.own, self.habits)

    def value(self, step: int, name: str) -> Array | None:
        values = self.own[step].values
        assert values is not None
        return values[name]

    def agrees(self, step: int, name: str, found: Array | None) -> bool:
        """Whether a value is what the simulator computes, or as close as the moved runs say it may be."""
        own = self.value(step, name)
        if found is None or own is None:
            return found is own
        if self.habits.flushes:
            # Where subnormal numbers are zero, the smaller of one and zero is either.
            found, own = flushed(found), flushed(own)
        return same(found, own) or any(
            self._explains(step, name, found, own, count) for count in (MOVED_RUNS, MORE_RUNS, 0)
        )

    def _explains(self, step: int, name: str, found: Array, own: Array, count: int) -> bool:
        others = []
        for run in self.runs(count) if count else (self._turned,):
            values = run[step].values
            other = None if values is None else values[name]
            if other is None or other.shape != own.shape:
                return True
            others.append(other)
        if found.shape != own.shape or found.dtype != own.dtype:
            return False
        return _within(found, own, others) if count else bool(np.all((found == own) | (found == others[0])))

    def may_fail(self, step: int) -> bool:
        """Whether some run fails in a step."""
        return any(run[step].values is None for run in (self.own, *self.runs(MOVED_RUNS)))

    def may_succeed(self, step: int) -> bool:
        return any(run[step].values is not None for run in (self.own, *self.runs(MOVED_RUNS)))


def same(found: Array, wanted: Array) -> bool:
    """The same values by their bits; NaNs are all alike."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    return bool(np.all(_same_elements(found, wanted)))


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def _same_elements(found: Array, wanted: Array) -> Array:
    if not _is_float(wanted):
        return np.asarray(found == wanted)
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    is_nan = np.isnan(one) & np.isnan(other)
    return np.asarray(((one == other) & (np.signbit(one) == np.signbit(other))) | is_nan)


def _within(found: Array, own: Array, others: Sequence[Array]) -> bool:
    good = _same_elements(found, own)
    agreed = np.ones(own.shape, bool)
    for other in others:
        agreed &= _same_elements(other, own)
    if not _is_float(own):
        return bool(np.all(good | ~agreed))
    with np.errstate(all="ignore"):
        wide = own.astype(np.longdouble)
        spread = np.zeros(own.shape, np.longdouble)
        is_open = np.zeros(own.shape, bool)
        for other in others:
            distance = np.abs(other.astype(np.longdouble) - wide)
            is_open |= ~np.isfinite(distance) & ~_same_elements(other, own)
            spread = np.fmax(spread, distance)
        near = np.abs(found.astype(np.longdouble) - wide) <= SLACK * spread
    return bool(np.all(good | is_open | (near & ~agreed)))


def judge_graph(made: RandomGraph, spread: Spread, watched: WatchedModule, outputs: Sequence[str]) -> None:
    """Run all steps of a module and compare everything that can be fetched."""
    module = watched.module
    kept = [name for name, home in module._program.homes.items() if home.storage is Storage.STATE]
    for step, inputs in enumerate(made.inputs):
        if is_synced(made, step) and spread.own[step - 1].state is not None:
            module.load_state(spread.own[step - 1].state)  # type: ignore[arg-type]
        failure = _failure(watched, inputs)
        if failure is not None:
            assert spread.may_fail(step), f"step {step}: the code fails, the simulator does not: {failure}"
            if spread.own[step].values is not None:
                return  # a matter of rounding; from here on they differ
            module.reset()
            continue
        if spread.own[step].values is None:
            assert spread.may_succeed(step), f"step {step}: the simulator fails, the code does not"
            return
        for name in (*outputs, *kept, *module._program.tables):
            found = fetched(module, name)
            assert spread.agrees(step, name, found), _report(step, name, found, spread.value(step, name))
        if set(outputs) >= set(made.results):
            judge_nodes(made, module, inputs, flushes=spread.habits.flushes)
        if (made.seed + step) % 3 == 1:
            _restore(module, (*kept, *module._program.tables))


def _restore(module: Any, kept: Sequence[str]) -> None:
    """The state, saved, forgotten and loaded: everything is there again, and the next step goes on from it."""
    before = {name: fetched(module, name) for name in kept}
    saved = module.save_state()
    module.reset()
    module.load_state(saved)
    for name, value in before.items():
        again = fetched(module, name)
        is_same = again is not None and value is not None and same(again, value)
        assert is_same, f"{name} is not what was saved"


def _failure(watched: WatchedModule, inputs: Mapping[str, Array]) -> OpenInferError | None:
    try:
        watched.module.insert(inputs)
        watched.run_step()
    except OpenInferError as error:
        return error
    return None


def _report(step: int, name: str, found: Array | None, wanted: Array | None) -> str:
    if found is None or wanted is None:
        return f"step {step}, {name}: the code has {found!r}, the simulator {wanted!r}"
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"step {step}, {name}: {found.dtype}{found.shape} against {wanted.dtype}{wanted.shape}"
    places = np.argwhere(np.atleast_1d(~_same_elements(found, wanted)))[:4]
    lines = [f"step {step}, {name}: {wanted.dtype}{wanted.shape}"]
    for place in places:
        at = tuple(place) if wanted.ndim else ()
        lines.append(f"  at {list(map(int, at))}: the code has {found[at]!r}, the simulator {wanted[at]!r}")
    return "\n".join(lines)
