"""Whole-sequence LSTM, GRU and RNN: a loop over time around a cell."""

from dataclasses import dataclass

import numpy as np

from openinfer.importing.draft import I64, DraftOperand, DraftPart, DraftValue, IndexOperand, KnownTensor, extent, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.ir.expr import BinaryExpr, Num, Ref
from openinfer.ir.operand import Single, Slice
from openinfer.loops.dim import expr_of, is_same, is_symbolic

_FUNCTIONS = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "relu": "relu",
    "softplus": "softplus",
    "softsign": "softsign",
    "elu": "elu",
    "hardsigmoid": "hard_sigmoid",
    "leakyrelu": "relu",
}


@dataclass(frozen=True)
class _Direction:
    """The weights of one direction, with separate biases for inputs and states."""

    w: DraftOperand
    r: DraftOperand
    b_ih: DraftOperand | None
    b_hh: DraftOperand | None
    peephole: DraftOperand | None
    functions: tuple[str, ...]


@dataclass(frozen=True)
class _States:
    """The states carried from step to step."""

    h: DraftOperand
    c: DraftOperand | None


@onnx_op("LSTM", "GRU", "RNN")
def _recurrent(n: NodeContext) -> NodeResults:
    batch_first = bool(n.integer("layout", 0))
    x = n.emit.transpose(n.x, (1, 0, 2)) if batch_first else n.x
    hidden = n.input(2).shape[-1]
    if n.rank != 3:
        raise Unsupported(f"its input is {n.x.type}, which should have 3 dimensions")
    if is_symbolic(hidden) or n.integer("hidden_size", hidden) != hidden or len(n.input(1).shape) != 3:
        raise Unsupported("its weights do not fit each other")
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    reversed_ = directions.get(n.text("direction", "forward"))
    if reversed_ is None:
        raise Unsupported(f"its direction {n.text('direction', '')!r:.40} is not supported")
    results = [_one_direction(n, x, place, hidden, is_reversed=one) for place, one in enumerate(reversed_)]
    y = n.emit.op("concat", *(one[0] for one in results), axis=1) if len(results) > 1 else results[0][0]
    finals = [
        _stacked(n, [state for state in states if state is not None])
        for states in zip(*(one[1:] for one in results), strict=True)
    ]
    if batch_first:
        y = n.emit.transpose(y, (2, 0, 1, 3))
        finals = [None if one is None else n.emit.transpose(one, (1, 0, 2)) for one in finals]
    return (y, *finals)


def _stacked(n: NodeContext, states: list[DraftOperand]) -> DraftOperand | None:
    return (
        n.emit.op("stack", *states, axis=0)
        if len(states) > 1
        else (n.emit.op("unsqueeze", states[0], axes=(0,)) if states else None)
    )


def _one_direction(
    n: NodeContext, x: DraftOperand, place: int, hidden: int, *, is_reversed: bool
) -> tuple[DraftOperand, DraftOperand, DraftOperand | None]:
    """All outputs [T, 1, B, H] and the final states of one direction."""
    weights = _weights(n, place, hidden)
    length, batch = x.shape[0], x.shape[1]
    states = [_initial(n, 5 + one, place, (batch, hidden)) for one in range(2 if n.node.op == "LSTM" else 1)]
    lengths = _lengths(n, length)
    if is_same(length, 1) and lengths is None:
        now = _cell(
            n, weights, n.emit.op("squeeze", x, axes=(0,)), _States(states[0], states[1] if len(states) > 1 else None)
        )
        return n.emit.op("unsqueeze", now.h, axes=(0, 1)), now.h, now.c
    source = n.emit.value(x)
    h = n.emit.variable(states[0], "h")
    c = n.emit.variable(states[1], "c") if len(states) > 1 else None
    y = n.emit.declare(x.dtype, (length, 1, batch, hidden), n.node.outputs[0] if n.node.outputs else "")
    index = n.emit.open_loop("time")
    at = place_in_time(index, length, is_reversed=is_reversed)
    row = DraftPart(source, (at, Slice(), Slice()), tuple(source.shape[1:]))
    out: DraftOperand = h
    if lengths is None and _is_native(n, weights):
        _native(n, weights, row, h, c)
    else:
        now = _cell(n, weights, row, _States(h, c))
        inside = None if lengths is None else _is_inside(n, lengths, index, length, is_reversed=is_reversed)
        _store(n, now, h, c, inside)
        out = h if inside is None else n.emit.op("where", inside, h, n.emit.scalar(0, h.dtype))
    n.emit.copy(out, DraftPart(y, (at, Single(Num(0)), Slice(), Slice()), (batch, hidden)))
    n.emit.close_loop("time", index, length)
    return y, h, c


def place_in_time(index: IndexOperand, length: int, *, is_reversed: bool) -> Single:
    """The position in time of an iteration, forwards or backwards."""
    if not is_reversed:
        return Single(Ref(index.name))
    last = Num(length - 1) if not hasattr(length, "expr") else BinaryExpr("-", expr_of(length), Num(1))
    return Single(BinaryExpr("-", last, Ref(index.name)))


def _initial(n: NodeContext, position: int, place: int, shape: tuple[int, int]) -> DraftOperand:
    given = n.optional(position)
    if given is None:
        return n.emit.zeros(n.x.dtype, shape)
    own = n.emit.transpose(given, (1, 0, 2)) if n.integer("layout", 0) else given
    return n.emit.op("gather", own, known(np.int64(place)))


def _lengths(n: NodeContext, length: int) -> DraftOperand | None:
    """The lengths of the sequences, or None if all of them have the full length."""
    given = n.optional(4)
    if given is None or (
        isinstance(given, KnownTensor) and not given.has_sizes and bool(np.all(given.array == length))
    ):
        return None
    if (
        isinstance(given, KnownTensor)
        and given.has_sizes
        and all(is_same(one, length) for one in given.array.reshape(-1))
    ):
        return None
    return n.emit.cast(given, I64)


def _store(n: NodeContext, now: _States, h: DraftValue, c: DraftValue | None, inside: DraftOperand | None) -> None:
    """Store the new states of the sequences that the position is inside of."""
    pairs = [(now.h, h)] + ([(now.c, c)] if c is not None and now.c is not None else [])
    for new, variable in pairs:
        n.emit.copy(new if inside is None else n.emit.op("where", inside, new, variable), variable)


def _is_inside(
    n: NodeContext, lengths: DraftOperand, index: IndexOperand, length: int, *, is_reversed: bool
) -> DraftOperand:
    """Whether the position of an iteration is inside each sequence, [B, 1]; backwards, the padding comes first."""
    place = n.emit.op("sub", extent(length - 1), index) if is_reversed else index
    return n.emit.op("unsqueeze", n.emit.op("gt", lengths, place), axes=(1,))


# --- weights and cells ------------------------------------------------------------------------------------------------


def _weights(n: NodeContext, place: int, hidden: int) -> _Direction:
    """One direction, with its gates in the order of the cells of the language."""
    count = {"LSTM": 4, "GRU": 3, "RNN": 1}[n.node.op]
    order = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}[n.node.op]
    rows = np.concatenate([np.arange(hidden) + gate * hidden for gate in order])

    def chosen(operand: DraftOperand, own: np.ndarray) -> DraftOperand:
        one = n.emit.op("gather", operand, known(np.int64(place)))
        return (
            one
            if np.array_equal(own, np.arange(own.size)) and own.size == one.shape[0]
            else n.emit.op("gather", one, known(own.astype(np.int64)))
        )

    w, r = chosen(n.input(1), rows), chosen(n.input(2), rows)
    bias, peephole = n.optional(3), n.optional(7)
    b_ih = None if bias is None else chosen(bias, rows)
    b_hh = None if bias is None else chosen(bias, rows + count * hidden)
    per = {"LSTM": 3, "GRU": 2, "RNN": 1}[n.node.op]
    defaults = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}[n.node.op]
    given = n.texts("activations")
    functions = tuple(one.lower() for one in (given[place * per : (place + 1) * per] if given else defaults))
    if len(functions) != per or any(one not in _FUNCTIONS for one in functions):
        raise Unsupported(f"its activations {list(functions)[:4]} are not supported")
    own_peephole = None if peephole is None else n.emit.op("gather", peephole, known(np.int64(place)))
    return _Direction(w, r, b_ih, b_hh, own_peephole, functions)


def _is_native(n: NodeContext, weights: _Direction) -> bool:
    """Whether a cell of the language computes exactly this."""
    if weights.peephole is not None or n.has("clip") or n.has("activation_alpha") or n.integer("input_forget", 0):
        return False
    match n.node.op:
        case "LSTM":
            return weights.functions == ("sigmoid", "tanh", "tanh")
        case "GRU":
            return weights.functions == ("sigmoid", "tanh") and bool(n.integer("linear_before_reset", 0))
    return weights.functions[0] in ("tanh", "relu")


def _cell_inputs(weights: _Direction, x: DraftOperand, states: _States) -> tuple[DraftOperand | None, ...]:
    own = (states.h,) if states.c is None else (states.h, states.c)
    return (x, *own, weights.w, weights.r, weights.b_ih, weights.b_hh)


def _native(n: NodeContext, weights: _Direction, x: DraftOperand, h: DraftValue, c: DraftValue | None) -> None:
    activation = "relu" if n.node.op == "RNN" and weights.functions[0] == "relu" else None
    given = _cell_inputs(weights, x, _States(h, c))
    outputs = (h,) if c is None else (h, c)
    n.emit.into(f"{n.node.op.lower()}_cell", outputs, *given, activation=activation)


def _cell(n: NodeContext, weights: _Direction, x: DraftOperand, states: _States) -> _States:
    """One time step."""
    if _is_native(n, weights):
        activation = "relu" if n.node.op == "RNN" and weights.functions[0] == "relu" else None
        found = n.emit.ops(f"{n.node.op.lower()}_cell", *_cell_inputs(weights, x, states), activation=activation)
        return _States(found[0], found[1] if states.c is not None else None)
    if n.has("activation_alpha") or n.has("activation_beta"):
        raise Unsupported("its activations have parameters")
    if n.node.op == "GRU":
        return _States(_gru_step(n, weights, x, states.h), None)
    inside = n.emit.op("linear", x, weights.w, weights.b_ih)
    gates = n.emit.op("add", inside, n.emit.op("linear", states.h, weights.r, weights.b_hh))
    if n.node.op == "RNN":
        return _States(_function(n, weights.functions[0], gates), None)
    return _lstm_step(n, weights, gates, states)


def _function(n: NodeContext, name: str, x: DraftOperand) -> DraftOperand:
    limit = n.real("clip", 0.0)
    if limit:
        x = n.emit.op("clamp", x, min=-limit, max=limit)
    params = {"leakyrelu": {"negative_slope": 0.01}, "hardsigmoid": {"alpha": 0.2, "beta": 0.5}}.get(name, {})
    return n.emit.op(_FUNCTIONS[name], x, **params)


def _gru_step(n: NodeContext, weights: _Direction, x: DraftOperand, h: DraftOperand) -> DraftOperand:
    """A GRU step with the reset gate before or after the product with the state."""
    hidden = h.shape[-1]
    f, g = weights.functions
    sizes = (hidden, hidden, hidden)
    inside = n.emit.ops("split", n.emit.op("linear", x, weights.w, weights.b_ih), axis=-1, sizes=sizes)
    rows = tuple(n.emit.ops("split", weights.r, axis=0, sizes=sizes))
    biases = (None, None, None) if weights.b_hh is None else n.emit.ops("split", weights.b_hh, axis=0, sizes=sizes)
    reset, update = (
        _function(n, f, n.emit.op("add", inside[gate], n.emit.op("linear", h, rows[gate], biases[gate])))
        for gate in (0, 1)
    )
    if n.integer("linear_before_reset", 0):
        outside = n.emit.op("mul", reset, n.emit.op("linear", h, rows[2], biases[2]))
    else:
        outside = n.emit.op("linear", n.emit.op("mul", reset, h), rows[2], biases[2])
    candidate = _function(n, g, n.emit.op("add", inside[2], outside))
    one = n.emit.scalar(1, h.dtype)
    kept = n.emit.op("mul", n.emit.op("sub", one, update), candidate)
    return n.emit.op("add", kept, n.emit.op("mul", update, h))


def _lstm_step(n: NodeContext, weights: _Direction, gates: DraftOperand, states: _States) -> _States:
    """An LSTM step with peepholes, coupled gates, or functions that ``lstm_cell`` does not have."""
    c = states.c
    assert c is not None
    hidden = c.shape[-1]
    i, f, g, o = n.emit.ops("split", gates, axis=-1, sizes=(hidden,) * 4)
    first, second, third = weights.functions
    peepholes = None if weights.peephole is None else n.emit.ops("split", weights.peephole, axis=0, sizes=(hidden,) * 3)

    def with_peephole(gate: DraftOperand, place: int, state: DraftOperand) -> DraftOperand:
        return gate if peepholes is None else n.emit.op("add", gate, n.emit.op("mul", peepholes[place], state))

    enter = _function(n, first, with_peephole(i, 0, c))
    if n.integer("input_forget", 0):
        keep = n.emit.op("sub", n.emit.scalar(1, c.dtype), enter)
    else:
        keep = _function(n, first, with_peephole(f, 2, c))
    new = n.emit.op("add", n.emit.op("mul", keep, c), n.emit.op("mul", enter, _function(n, second, g)))
    leave = _function(n, first, with_peephole(o, 1, new))
    return _States(n.emit.op("mul", leave, _function(n, third, new)), new)
