"""The lengths of slices that ops read directly, as far as the source states them; generated code relies on these."""

from typing import TYPE_CHECKING

from openinfer.check.access import PartialShape, access_type
from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.sizes import evaluate_evenly
from openinfer.errors import Code
from openinfer.ir import Access, Single, Slice
from openinfer.ir.expr import Ref, evaluate
from openinfer.loops.dim import Dim, expr_of, sizes_in
from openinfer.ops import OpError, Shape, TensorType

if TYPE_CHECKING:
    from openinfer.sim.task import Task


class StatedLengths:
    """The lengths of one access. ``K[n..n+3]`` has three entries or fails, since ends below zero count from the extent.

    A length known only at run time is at most the bound of its axis, if there is one.
    """

    def __init__(self, bound: BoundGraph, access: Access, variable: BoundVar) -> None:
        self._bound = bound
        self._access = access
        self._variable = variable
        self._most = _bounds(access, variable)
        self._stated: PartialShape | None = None

    def require(self, task: "Task", shape: Shape) -> None:
        """Refuse a slice whose shape differs from what the source states."""
        if self._stated is None:  # the enclosing loops of a node are the same whenever it runs
            self._stated = self._symbolic_shape(task)
        axes = sorted(enumerate(self._stated), key=lambda one: one[1] is not None and len(sizes_in(one[1])) > 1)
        for axis, stated in axes:
            if stated is None:
                most = self._most[axis] if axis < len(self._most) else None
                if most is not None and shape[axis] > most:
                    raise self._error(Code.SIZE_CONFLICT, shape, f"the axis has at most {most}")
            elif shape[axis] != (wanted := evaluate(expr_of(stated), task.sizes.lookup)):
                code = Code.SIZE_CONFLICT if sizes_in(stated) else Code.SHAPE_MISMATCH
                raise self._error(code, shape, f"its bounds are {wanted} apart")

    def _error(self, code: Code, shape: Shape, why: str) -> OpError:
        return OpError(code, f"{self._access} is {TensorType(self._variable.dtype, shape)}, but {why}")

    def _symbolic_shape(self, task: "Task") -> PartialShape:
        bound, variable = self._bound, self._variable

        def size(name: str) -> int:
            return Dim(bound.bounds[name], Ref(name)) if name in bound.bounds else bound.sizes[name]

        def static(name: str) -> int | None:
            if name in task.indices:
                return None
            if name in bound.vars:
                found = bound.constants.get(name)
                return found if isinstance(found, int) else None
            return size(name) if name in bound.bounds or name in bound.sizes else None

        dims = variable.dims
        whole = variable.shape if dims is None else tuple(evaluate_evenly(dim, {}, size) for dim in dims)
        return access_type(self._access, variable, whole, static).shape


def _bounds(access: Access, variable: BoundVar) -> tuple[int | None, ...]:
    """The maximum lengths of a slice, by axis; slices of plain tensors cannot exceed the tensor."""
    decl = variable.decl
    if decl is None or not variable.is_table:
        return ()
    chosen = dict(zip(decl.table_indices, access.indices or (Slice(),) * len(decl.table_indices), strict=True))
    cells = [chosen[name] for name in decl.auto_dim]
    is_grown = all(isinstance(one, Single) for one in cells)
    found = [
        variable.fixed.get(name)
        for name, index in chosen.items()
        if name not in decl.auto_dim and isinstance(index, Slice)
    ]
    for axis, name in enumerate(decl.auto_dim):
        if is_grown or isinstance(chosen[name], Slice):
            found.append(variable.shape[axis] + variable.fixed[name] if name in variable.fixed else None)
    return tuple(found)
