"""Loop indices that the blocks of a branch read: a block does not see the loop around its branch."""

from collections.abc import Iterator, Mapping

from openinfer.importing.draft import (
    DraftCopy,
    DraftFamily,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftRead,
    DraftStep,
    DraftStore,
    DraftWrite,
    IndexOperand,
    operands,
    walk,
)
from openinfer.ir.expr import BinaryExpr, Expr, Ref, names
from openinfer.ir.operand import Index, Single, Slice


def indices_read(steps: tuple[DraftStep, ...]) -> set[str]:
    """The names that steps read as indices, including those of their own loops."""
    found: set[str] = set()
    for step in walk(steps):
        for operand in (*operands(step), *_targets(step)):
            match operand:
                case IndexOperand(name):
                    found.add(name)
                case DraftFamily():
                    found.add(operand.index)
                case DraftPart():
                    found.update(name for index in operand.indices for name in _names(index))
        if isinstance(step, DraftWrite | DraftRead):
            found.add(step.layer)
    return found


def _targets(step: DraftStep) -> tuple[DraftOperand, ...]:
    match step:
        case DraftOp():
            return step.outputs
        case DraftCopy():
            return (step.dst,)
        case DraftStore():
            return (step.state,)
    return ()


def _names(index: Index) -> Iterator[str]:
    ends = (index.value,) if isinstance(index, Single) else (index.start, index.end)
    for end in ends:
        if end is not None:
            yield from names(end)


def with_index_names(index: Index, renamed: Mapping[str, str]) -> Index:
    """An index with the loop indices in it renamed."""
    if isinstance(index, Single):
        return Single(_expr(index.value, renamed))
    return Slice(*(None if end is None else _expr(end, renamed) for end in (index.start, index.end)))


def _expr(expr: Expr, renamed: Mapping[str, str]) -> Expr:
    match expr:
        case Ref(name):
            return Ref(renamed.get(name, name))
        case BinaryExpr(operator, left, right):
            return BinaryExpr(operator, _expr(left, renamed), _expr(right, renamed))
    return expr
