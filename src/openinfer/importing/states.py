"""Ties outputs to the inputs of the next step: persistent variables, and tables for states that only grow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from openinfer.errors import nearest
from openinfer.importing.draft import (
    Draft,
    DraftCopy,
    DraftCount,
    DraftCounter,
    DraftDeclare,
    DraftOp,
    DraftOperand,
    DraftRead,
    DraftState,
    DraftStep,
    DraftStore,
    DraftTable,
    DraftValue,
    DraftWrite,
    KnownTensor,
    NodeOrigin,
    Port,
    base_of,
    operands,
    walk,
)
from openinfer.importing.outputs import matching_outputs
from openinfer.importing.problems import bad_option
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, is_same, is_same_shape, is_symbolic, sizes_in, span


@dataclass(frozen=True)
class StatePair:
    """An output and the input that receives it in the next step; ``initial`` is the first value, if not zero."""

    output: Port
    given: Port
    value: DraftValue
    initial: KnownTensor | None = None


def with_states(draft: Draft, patterns: Sequence[tuple[str, str]], own: Sequence[StatePair] = ()) -> Draft:
    """The draft with inputs tied to outputs by patterns of their names; ``own`` are the pairs that the model ties."""
    if not patterns and not own:
        return draft
    pairs = [pair for output, given in patterns for pair in _matches(draft, output, given)]
    _require_once(pairs)
    pairs += own
    growing = [(pair, growth) for pair in pairs if (growth := _growth(draft, pair)) is not None]
    plain = [pair for pair in pairs if all(pair is not one for one, _ in growing)]
    for pair in plain:
        _require_same(pair)
    tied = {id(pair.given) for pair in pairs}
    results = {id(pair.output) for pair in pairs}
    draft = replace(
        draft,
        inputs=tuple(port for port in draft.inputs if id(port) not in tied),
        outputs=tuple(port for port in draft.outputs if id(port) not in results),
        states=tuple(DraftState(pair.given.name, pair.output.name, pair.value, pair.initial) for pair in plain),
    )
    draft = _with_tables(draft, growing) if growing else draft
    draft = _with_kept_outputs(draft, plain)
    return replace(draft, steps=(*draft.steps, *_stores(plain)))


# --- matching outputs to inputs ---------------------------------------------------------------------------------------


def _matches(draft: Draft, output: str, given: str) -> list[StatePair]:
    """The pairs of one pattern; each ``*`` stands for the same text on both sides."""
    if output.count("*") != given.count("*"):
        raise bad_option(f"the state {output}={given} needs the same number of * on both sides")
    inputs = {port.name: port for port in draft.inputs}
    found = []
    for port, texts in matching_outputs(draft, output):
        wanted = _filled(given, texts)
        own = inputs.get(wanted)
        if own is None:
            advice = nearest(wanted, inputs) or f"its inputs are {', '.join(inputs)}"
            raise bad_option(f"the model has no input {wanted!r:.100} for the output {port.name!r:.100}", advice)
        assert isinstance(own.operand, DraftValue)
        found.append(StatePair(port, own, own.operand))
    return found


def _filled(pattern: str, texts: tuple[str, ...]) -> str:
    parts = pattern.split("*")
    return parts[0] + "".join(text + part for text, part in zip(texts, parts[1:], strict=True))


def _require_once(pairs: Sequence[StatePair]) -> None:
    for names in ([pair.output.name for pair in pairs], [pair.given.name for pair in pairs]):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise bad_option(f"{min(twice)!r:.100} is tied twice")


def _require_same(pair: StatePair) -> None:
    one, other = pair.output.operand, pair.value
    if one.dtype is not other.dtype or not is_same_shape(one.shape, other.shape):
        message = (
            f"the output {pair.output.name!r:.60} is {one.type}, and the input {pair.given.name!r:.60} {other.type}"
        )
        raise bad_option(message, "a state has one type, or grows along one dynamic size by concatenation")
    if any(map(is_symbolic, other.shape)):
        message = f"the state {pair.given.name!r:.60} is {other.type}, whose size can change from step to step"
        raise bad_option(message, "fix the size: --size NAME=VALUE")


# --- states of one type -----------------------------------------------------------------------------------------------


def _stores(pairs: Sequence[StatePair]) -> list[DraftStep]:
    """The writes at the end of a step. A source that is itself a state is saved first: another write may change it."""
    states = {id(pair.value) for pair in pairs}
    kept: list[DraftStep] = []
    writes: list[DraftStep] = []
    for pair in pairs:
        source = pair.output.operand
        if source is pair.value:
            continue
        if id(base_of(source)) in states:
            copy = DraftValue(source.dtype, source.shape, pair.output.name)
            kept += [DraftDeclare(copy), DraftCopy(source, copy)]
            source = copy
        writes.append(DraftStore(source, pair.value))
    return kept + writes


def _with_kept_outputs(draft: Draft, pairs: Sequence[StatePair]) -> Draft:
    """The draft with outputs that are the old value of a state copied before the state is written."""
    written = {id(pair.value) for pair in pairs if pair.output.operand is not pair.value}
    kept: list[DraftStep] = []
    outputs = []
    for port in draft.outputs:
        operand = port.operand
        if id(base_of(operand)) in written:
            copy = DraftValue(operand.dtype, operand.shape, port.name)
            kept += [DraftDeclare(copy), DraftCopy(operand, copy)]
            operand = copy
        outputs.append(replace(port, operand=operand))
    return replace(draft, steps=(*draft.steps, *kept), outputs=tuple(outputs))


# --- states that grow -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Growth:
    """How a state grows: the concatenation, its axis, the size before it and the extent it adds."""

    step: DraftOp
    axis: int
    past: int
    added: int


def _growth(draft: Draft, pair: StatePair) -> _Growth | None:
    """How an output appends to its input, or None if it does not."""
    result = pair.output.operand
    for step in draft.steps:
        if isinstance(step, DraftOp) and any(one is result for one in step.outputs):
            if step.op != "concat" or step.inputs[0] is not pair.value:
                return None
            axis = dict(step.params)["axis"]
            past = pair.value.shape[axis]
            if not isinstance(past, Dim) or not isinstance(past.expr, Ref):
                return None
            others = (*pair.value.shape[:axis], *pair.value.shape[axis + 1 :])
            if any(map(is_symbolic, others)):
                return None
            added: int = 0
            for one in step.inputs[1:]:
                assert one is not None
                added = one.shape[axis] + added
            return _Growth(step, axis, past, added)
    return None


def _with_tables(draft: Draft, growing: Sequence[tuple[StatePair, _Growth]]) -> Draft:
    """The draft with the concatenations as writes to tables, which are then read back as a whole."""
    counters: dict[str, tuple[DraftCounter, int]] = {}
    tables: dict[int, tuple[DraftTable, StatePair, _Growth]] = {}
    for pair, growth in growing:
        name = str(growth.past)
        counter, added = counters.setdefault(name, (DraftCounter(name), growth.added))
        if not is_same(added, growth.added):
            raise bad_option(f"the states that begin with the size {name!r} do not grow by the same length")
        bound = span(growth.past + growth.added)[1]
        table = DraftTable(pair.given.name, pair.value.dtype, _entry(pair.value.shape, growth.axis), bound, counter)
        tables[id(growth.step)] = (table, pair, growth)
    steps: list[DraftStep] = []
    for step in draft.steps:
        known = tables.get(id(step))
        steps += [step] if known is None else _appended(known[0], known[2])
    before = _past_reads(draft, list(tables.values()))
    counts = [DraftCount(counter, added) for counter, added in counters.values()]
    states = [DraftState(pair.given.name, pair.output.name, table) for table, pair, _ in tables.values()]
    return replace(draft, steps=(*before, *steps, *counts), states=(*draft.states, *states))


def _entry(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _appended(table: DraftTable, growth: _Growth) -> list[DraftStep]:
    """Append the new entries to a table and read all of them back."""
    step, axis = growth.step, growth.axis
    rest = tuple(one for one in step.inputs[1:] if one is not None)
    steps: list[DraftStep] = []
    new: DraftOperand = rest[0]
    if len(rest) > 1:
        joined = DraftValue(new.dtype, _with_extent(new.shape, axis, growth.added))
        steps.append(DraftOp("concat", rest, (("axis", axis),), (joined,), step.origin))
        new = joined
    rank = len(new.shape)
    first = (axis, *(one for one in range(rank) if one != axis))
    new = _transposed(new, first, steps, step.origin)
    result = step.outputs[0]
    assert isinstance(result, DraftValue)
    total = result.shape[axis]
    whole = DraftValue(new.dtype, (total, *table.entry))
    steps.append(DraftWrite(new, table, growth.added))
    if axis == 0:
        return [*steps, DraftDeclare(result), DraftRead(table, result, growth.added)]
    back = tuple(first.index(one) for one in range(rank))
    steps += [DraftDeclare(whole), DraftRead(table, whole, growth.added)]
    return [*steps, DraftOp("transpose", (whole,), (("perm", back),), (result,), step.origin)]


def _with_extent(shape: Sequence[int], axis: int, extent: int) -> tuple[int, ...]:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _transposed(
    operand: DraftOperand, perm: tuple[int, ...], steps: list[DraftStep], origin: NodeOrigin
) -> DraftOperand:
    if perm == tuple(range(len(perm))):
        return operand
    made = DraftValue(operand.dtype, tuple(operand.shape[one] for one in perm))
    steps.append(DraftOp("transpose", (operand,), (("perm", perm),), (made,), origin))
    return made


def _past_reads(draft: Draft, tables: Sequence[tuple[DraftTable, StatePair, _Growth]]) -> list[DraftStep]:
    """Reads of the old entries, where something uses them or nothing else determines their number."""
    appended = {id(growth.step) for _, _, growth in tables}
    read = {id(base_of(one)) for step in walk(draft.steps) if id(step) not in appended for one in operands(step)}
    read |= {id(base_of(port.operand)) for port in draft.outputs}
    bound = {name for port in draft.inputs for extent in port.operand.shape for name in sizes_in(extent)}
    steps: list[DraftStep] = []
    for table, pair, growth in tables:
        is_needed = str(growth.past) not in bound
        if id(pair.value) not in read and not is_needed:
            continue
        bound.add(str(growth.past))
        rank = len(pair.value.shape)
        whole = pair.value if growth.axis == 0 else DraftValue(pair.value.dtype, (growth.past, *table.entry))
        steps += [DraftDeclare(whole), DraftRead(table, whole, 0)]
        if whole is not pair.value and id(pair.value) in read:
            first = (growth.axis, *(one for one in range(rank) if one != growth.axis))
            back = tuple(first.index(one) for one in range(rank))
            steps.append(DraftOp("transpose", (whole,), (("perm", back),), (pair.value,)))
    return steps
