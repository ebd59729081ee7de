"""Arrow columns as arrays of rows, and back; without copies where the memory layout allows it."""

from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from openinfer.dtypes import DType
from openinfer.errors import BatchError, Code, Diagnostic
from openinfer.ops import Array


def rows_of(name: str, column: Any, shape: tuple[int, ...]) -> Any:
    """The rows of a column, each of the given shape: one array, or a list of arrays if an extent is -1."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if -1 in shape:
        return [_row(name, array[at]) for at in range(len(array))]
    count, levels = len(array), 0
    while _is_list(array.type):
        lengths = pc.list_value_length(array)
        wanted = prod(shape) if not _is_list(array.type.value_type) and levels == 0 else _extent(shape, levels)
        _require_values(name, array)
        if len(array) and pc.min_max(lengths).as_py() != {"min": wanted, "max": wanted}:
            raise _bad(f"the column {name!r} has lists of other lengths than {wanted}")
        array, levels = array.flatten(), levels + 1
    _require_values(name, array)
    leaf = _leaf(name, array)
    if leaf.size != count * prod(shape):
        raise _bad(f"the column {name!r} has {leaf.size} elements in {count} rows, and a row has {prod(shape)}")
    return leaf.reshape(count, *shape)


def _extent(shape: tuple[int, ...], level: int) -> int:
    return shape[level] if level < len(shape) else -1


def _is_list(kind: Any) -> bool:
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(one(kind) for one in kinds)


def _row(name: str, scalar: Any) -> Array:
    """A row of a column whose rows differ in shape."""
    if not scalar.is_valid:
        raise _bad(f"the column {name!r} has rows without a value")
    if not _is_list(scalar.type):
        return _leaf(name, pa.array([scalar.as_py()], scalar.type)).reshape(())
    if not _is_list(scalar.type.value_type):
        _require_values(name, scalar.values)
        return _leaf(name, scalar.values)
    rows = [_row(name, one) for one in scalar.values]
    if len({row.shape for row in rows}) > 1:
        raise _bad(f"a row of the column {name!r} has lists of different lengths")
    return np.stack(rows) if rows else np.zeros(0)


def _leaf(name: str, array: Any) -> Array:
    kind = array.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise _bad(f"the column {name!r} is {kind}, which no tensor can hold")
    found: Array = array.to_numpy(zero_copy_only=False)
    return found


def _require_values(name: str, array: Any) -> None:
    if array.null_count:
        raise _bad(f"the column {name!r} has rows without a value", "fill them first")


def _bad(message: str, advice: str | None = None) -> BatchError:
    return BatchError(Diagnostic(Code.BAD_BATCH, message, None, advice))


def element_type(dtype: DType) -> Any:
    """An Arrow type that holds all values of a dtype."""
    match dtype.kind:
        case "bool":
            return pa.bool_()
        case "float":
            return {"f16": pa.float16(), "f64": pa.float64()}.get(dtype.name, pa.float32())
        case kind:
            return getattr(pa, f"{kind}{max(dtype.bits, 8)}")()


def column_of(rows: Any, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Rows as a column: fixed-size lists if all extents are known, else lists."""
    element = element_type(dtype)
    if -1 in shape:
        kind = element
        for _ in shape:
            kind = pa.list_(kind)
        return pa.array([np.asarray(row).astype(element.to_pandas_dtype()).tolist() for row in rows], kind)
    flat = np.asarray(rows).reshape(-1).astype(element.to_pandas_dtype(), copy=False)
    found = pa.array(flat, element)
    for extent in reversed(shape):
        found = pa.FixedSizeListArray.from_arrays(found, extent) if extent else _empty_lists(found, len(rows))
    return found


def _empty_lists(values: Any, count: int) -> Any:
    return pa.array([[]] * count, pa.list_(values.type, 0))
