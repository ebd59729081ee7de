"""The types of a bound graph's variables as text, for display beside a picture."""

from collections.abc import Mapping

from openinfer.check.bound import BoundGraph, BoundVar, FromModel, FromPattern
from openinfer.ir.expr import names


def variable_types(bound: BoundGraph) -> Mapping[str, str]:
    """The type of each variable; variables of a block are keyed ``block.name``."""
    return {name: bound_type_text(one, bound) for name, one in bound.vars.items()}


def linked_variables(bound: BoundGraph | None) -> frozenset[str]:
    """The variables filled from the model."""
    found = bound.vars.values() if bound is not None else ()
    return frozenset(one.name for one in found if isinstance(one.origin, FromModel | FromPattern))


def bound_type_text(variable: BoundVar, bound: BoundGraph) -> str:
    """A type, with numbers for fixed extents and expressions for extents that vary from step to step."""
    spelled = variable.dims or (None,) * len(variable.shape)
    extents = [
        str(dim) if dim is not None and bound.bounds.keys() & set(names(dim)) else str(extent)
        for dim, extent in zip(spelled, variable.shape, strict=True)
    ]
    table = f" by {', '.join(variable.decl.table_indices)}" if variable.decl and variable.decl.is_indexed else ""
    return f"{variable.dtype.name}[{', '.join(extents)}]{table}" if extents else f"{variable.dtype.name}{table}"
