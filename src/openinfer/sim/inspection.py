"""Variables as lines of text: types, previews, statistics, and changes."""

from itertools import islice

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar, FromInit, FromModel, FromPattern, interface
from openinfer.check.events import statistics
from openinfer.errors import printable
from openinfer.ir import Access, MemoryKind
from openinfer.ir.html import captioned, html_table
from openinfer.ops import Array, TensorType
from openinfer.sim.preview import format_truncated
from openinfer.sim.views import ExecutionPoint, same_bits

ROWS = 6
COLUMNS = 8


def brief(variable: BoundVar, value: Array) -> str:
    """A value in brief: ``f32[2] [1, 2]``."""
    return f"{TensorType(variable.dtype, value.shape)} {format_truncated(value)}"


def described(variable: BoundVar, value: Array) -> list[str]:
    """A value in full: type and kind, as many rows of elements as fit, statistics."""
    kind = "temporary" if variable.is_temporary else variable.kind.value
    lines = [f"{TensorType(variable.dtype, value.shape)}, {kind}", *_rows(value)]
    return [*lines, numbers(value)] if value.size > 1 else lines


def _rows(value: Array) -> list[str]:
    if value.ndim < 2 or not value.size:
        return [f"  {format_truncated(value, COLUMNS)}"]
    shape = value.shape[:-1]
    lines = [
        f"  [{', '.join(map(str, index))}] {format_truncated(value[index], COLUMNS)}"
        for index in islice(np.ndindex(shape), ROWS)
    ]
    more = int(np.prod(shape)) - ROWS
    return [*lines, f"  ... {more} more rows"] if more > 0 else lines


def numbers(value: Array) -> str:
    """Minimum, maximum and mean, and the number of elements that are not finite."""
    found = statistics(value)
    if found["min"] is None and not found["nan"]:
        return "  no elements"
    names = ["min", "max", "mean", "nan", *(["inf"] if found["inf"] else [])]
    return f"  {', '.join(f'{name} {_number(found[name])}' for name in names)}"


def _number(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else value or "-"


def difference(before: Array | None, after: Array) -> str:
    """How a value has changed, in words."""
    if before is None:
        return "new"
    if before.shape != after.shape:
        return f"changed: was {list(before.shape)}"
    if same_bits(before, after):
        return "same"
    one, other = (np.asarray(value).astype(np.float64).reshape(-1) for value in (before, after))
    with np.errstate(all="ignore"):
        differs = ~((one == other) | (np.isnan(one) & np.isnan(other)))
        most = np.nanmax(np.abs(one - other)[differs], initial=0.0)
    if not differs.any():
        return "changed in sign of zero or bits of NaN only"
    if after.size == 1:
        return f"changed: was {format_truncated(before.reshape(()))}"
    return f"changed: {int(differs.sum())} of {after.size}, by at most {most:.6g}"


def overview(place: ExecutionPoint, variable: BoundVar) -> str:
    """A variable on one line, without loading weights or computing unused values."""
    name, origin = variable.name, variable.origin
    if variable.is_table:
        shape = place.variables.tables[name].shape_of(())
        return f"{TensorType(variable.dtype, shape)} table"
    if isinstance(origin, FromPattern):
        return f"{variable.type} for each model tensor {printable(origin.pattern)!r}"
    if place.is_at_hand(name) or variable.kind is MemoryKind.PERSISTENT:  # an earlier step may have written it
        return brief(variable, place.read(Access(name)))
    if isinstance(origin, FromModel):
        return f"{variable.type} model entry {printable(origin.name)!r}, not read yet"
    initial = origin.value if isinstance(origin, FromInit) and origin.value is not None else 0
    return f"{variable.type} still {initial}"


def executor_html(bound: BoundGraph, place: ExecutionPoint, *, is_suspended: bool) -> str:
    """An executor for notebooks: its inputs and outputs, and all variables, without loading any."""
    rows = [
        (one.name, "temporary" if one.is_temporary else one.kind.value, overview(place, one))
        for one in bound.vars.values()
    ]
    title = f"Executor: {interface(bound)}{', in a step' * is_suspended}"
    return captioned(title, html_table(("variable", "kind", "value"), rows))
