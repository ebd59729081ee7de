"""Single uses of ops for random graphs, drawn from the records' own test inputs.

Every op and dtype is dealt once before any comes again. A use may be stretched: one of its extents becomes another one,
or a dynamic size, wherever it occurs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, at, is_symbolic, sizes_in
from openinfer.loops.ir import Fail, walk
from openinfer.ops import OPS, Array, Call, Case, OpError, OpRecord, ReferenceKernel, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of

PER_GRAPH = 12
MOST_ELEMENTS = 9_000
MOST_OPERATIONS = 400_000
EXTENTS = (0, 1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65)
"""Nothing, one, primes, and the neighbours of multiples of vectors and tiles."""

RECORDS: Mapping[str, OpRecord] = {record.name: record for record in OPS.values()}
PAIRS = tuple((name, dtype.name) for name, record in RECORDS.items() for dtype in record.dtypes)
"""Every op with every dtype it works on."""
_SHAPE_PARAMS = ("shape", "sizes")


@dataclass(frozen=True)
class Use:
    """One call: operands as stored at the bounds of sizes, their types, parameters as written, types of results."""

    record: OpRecord
    arrays: tuple[Array | None, ...]
    types: tuple[TensorType | None, ...]
    params: Mapping[str, Any]
    outputs: tuple[TensorType, ...]
    can_fail: bool = False

    @property
    def is_dynamic(self) -> bool:
        return any(is_symbolic(extent) for kind in (*self.types, *self.outputs) if kind for extent in kind.shape)


@cache
def hands(epoch: int) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The pairs, shuffled and dealt out: each hand has one dtype, so that results fit operands."""
    rng = np.random.default_rng([3, epoch])
    found = []
    for dtype in DTYPES:
        own = [pair for pair in PAIRS if pair[1] == dtype]
        own = [own[place] for place in rng.permutation(len(own))]
        count = max(1, -(-len(own) // PER_GRAPH))
        found += [tuple(own[place::count]) for place in range(count)] if own else []
    return tuple(found[place] for place in rng.permutation(len(found)))


def hand(seed: int) -> tuple[tuple[str, str], ...]:
    """The pairs that the graph of a seed must have."""
    count = len(hands(0))
    return hands(seed // count)[seed % count]


def drawn(rng: np.random.Generator, name: str, dtype: str, size: str | None, bound: int) -> Use:
    """A use of an op: one of its cases, often stretched, sometimes to a dynamic size."""
    record = RECORDS[name]
    cases = list(record.cases(np.random.default_rng(rng.integers(1 << 30)), DTYPES[dtype]))
    for place in rng.permutation(len(cases)):
        plain = _use(record, cases[place])
        if plain is not None:
            break
    else:
        raise AssertionError(f"no case of '{name}' for {dtype} is small and has a result")
    roll = rng.random()
    if size is not None and roll < 0.6:
        return _stretched(rng, plain, Dim(bound, Ref(size))) or plain
    if roll < 0.5:
        return _stretched(rng, plain, int(rng.choice(EXTENTS))) or plain
    return plain


def _use(record: OpRecord, case: Case) -> Use | None:
    types = tuple(
        None if array is None or kind is None else TensorType(kind, array.shape)
        for array, kind in zip(case.arrays, case.dtypes, strict=True)
    )
    return checked(record, case.arrays, types, case.params)


def checked(
    record: OpRecord,
    arrays: Sequence[Array | None],
    types: Sequence[TensorType | None],
    params: Mapping[str, Any],
    wanted: tuple[TensorType, ...] = (),
) -> Use | None:
    """The use, if there is such a call, it is small, and it has a result for these operands."""
    kinds = tuple(types)
    try:
        call = infer(record, Call(kinds, complete(record, params), wanted))
    except OpError:
        return None
    if not all(_holds_at(record, call, share) for share in (0.2, 0.5, 0.8)):
        return None
    sizes = [kind.size for kind in (*kinds, *call.outputs) if kind is not None]
    if max(sizes) > MOST_ELEMENTS or record.cost(call).flops > MOST_OPERATIONS or not _can_be_declared(call):
        return None
    stored = tuple(None if kind is None else kind.dtype for kind in kinds)
    dtype = next(kind for kind in stored if kind is not None)
    can_fail = _can_fail(record.name, dtype if dtype in record.dtypes else record.dtypes[0])
    if can_fail:
        try:
            with np.errstate(all="ignore"):
                ReferenceKernel(record, _at_bounds(call), stored)(arrays)
        except OpError:
            return None
    return Use(record, tuple(arrays), kinds, dict(params), call.outputs, can_fail)


def _holds_at(record: OpRecord, call: Call, share: float) -> bool:
    """Whether there is such a call, and of the same form, when sizes are smaller."""
    extents = [extent for kind in call.inputs if kind is not None for extent in kind.shape]
    sizes = {name: max(1, int(int(extent) * share)) for extent in extents for name in sizes_in(extent)}
    if not sizes:
        return True

    def settled(value: Any) -> Any:
        return tuple(map(settled, value)) if isinstance(value, tuple) else at(value, sizes)

    inputs = tuple(None if kind is None else replace(kind, shape=settled(kind.shape)) for kind in call.inputs)
    params = {name: settled(value) for name, value in call.params.items()}
    try:
        found = infer(record, Call(inputs, params, call.wanted))
    except OpError:
        return False
    shapes = [settled(kind.shape) for kind in call.outputs]
    # Memory is planned for the bounds: extents that grow while a size shrinks are refused when the code runs.
    grows = any(
        one > most
        for shape, kind in zip(shapes, call.outputs, strict=True)
        for one, most in zip(shape, kind.shape, strict=True)
    )
    return not grows and [kind.shape for kind in found.outputs] == shapes


def _at_bounds(call: Call) -> Call:
    def plain(kind: TensorType | None) -> TensorType | None:
        return None if kind is None else replace(kind, shape=tuple(map(int, kind.shape)))

    inputs = tuple(map(plain, call.inputs))
    return replace(call, inputs=inputs, outputs=tuple(kind for kind in map(plain, call.outputs) if kind))


@cache
def _can_fail(name: str, dtype: DType) -> bool:
    """Whether some values of this dtype have no result."""
    record = RECORDS[name]
    for case in record.cases(np.random.default_rng(0), dtype):
        types = tuple(
            None if array is None or kind is None else TensorType(kind, array.shape)
            for array, kind in zip(case.arrays, case.dtypes, strict=True)
        )
        kernel = kernel_of(record, infer(record, Call(types, complete(record, case.params))), case.dtypes)
        if any(isinstance(statement, Fail) for statement in walk(kernel.body)):
            return True
    return False


def _can_be_declared(call: Call) -> bool:
    """Whether results have extents that a graph can spell for every value of the sizes: divisions may leave a rest."""
    extents = [repr(extent) for kind in call.outputs for extent in kind.shape if is_symbolic(extent)]
    return not any(mark in text for text in extents for mark in "/%")


def _stretched(rng: np.random.Generator, use: Use, to: int) -> Use | None:
    """The use with one of its extents, wherever it occurs, replaced."""
    extents = sorted({int(extent) for kind in use.types if kind is not None for extent in kind.shape if extent})
    for place in rng.permutation(len(extents)):
        extent = extents[place]
        arrays = [None if array is None else _with_extent(array, extent, int(to)) for array in use.arrays]
        types = [None if kind is None else _with_type(kind, extent, to) for kind in use.types]
        variants = [{**use.params, **dict(_with_params(use.params, extent, to))}, use.params]
        for params in variants:
            found = checked(use.record, arrays, types, params)
            if found is not None:
                return found
    return None


def _with_extent(array: Array, extent: int, to: int) -> Array:
    for axis, own in enumerate(array.shape):
        if own == extent:
            array = np.take(array, np.arange(to) % extent, axis=axis)
    return array


def _with_type(kind: TensorType, extent: int, to: int) -> TensorType:
    return replace(kind, shape=tuple(to if own == extent else own for own in kind.shape))


def _with_params(params: Mapping[str, Any], extent: int, to: int) -> Iterator[tuple[str, Any]]:
    for name in _SHAPE_PARAMS:
        if isinstance(params.get(name), tuple | list):
            yield name, tuple(to if own == extent else own for own in params[name])


def cut(array: Array, kind: TensorType, sizes: Mapping[str, int]) -> Array:
    """An operand at given sizes: the first elements along axes that have a dynamic size."""
    shape = tuple(max(at(extent, sizes), 0) for extent in kind.shape)
    return np.array(array[tuple(slice(extent) for extent in shape)], order="C")


def text_of(value: Any) -> str:
    """A parameter as it is written in a graph."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(text_of, value))}]"
    number = value.item() if isinstance(value, np.generic) else value
    # The language has no integers of more than 64 bits; as a float the number means the same to both sides.
    return repr(float(number) if isinstance(number, int) and not -(1 << 63) <= number < 1 << 64 else number)
