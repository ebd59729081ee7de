"""Whole-sequence LSTM, GRU and RNN: a loop over time around a cell, for each layer and direction."""

from dataclasses import dataclass

from openinfer.importing.aten.context import AtenContext, AtenResults, aten_op, word
from openinfer.importing.draft import DraftOperand, DraftPart, extent
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.recurrent import place_in_time
from openinfer.ir.operand import Slice
from openinfer.loops.dim import is_same

_CELLS = {"lstm": "lstm_cell", "gru": "gru_cell", "rnn_tanh": "rnn_cell", "rnn_relu": "rnn_cell"}


@dataclass(frozen=True)
class _Direction:
    """One direction of one layer: input and recurrent weights, biases, and the initial states."""

    weights: tuple[DraftOperand | None, ...]
    states: tuple[DraftOperand, ...]
    is_reversed: bool


@aten_op(*_CELLS)
def _recurrent(n: AtenContext) -> AtenResults:
    if n.node.overload != "input":
        raise Unsupported("it runs over packed sequences", "pass padded sequences")
    if n.flag("train") and n.real("dropout"):
        raise Unsupported("it drops values as in training", "call module.eval() before the import")
    batch_first = n.flag("batch_first")
    x = n.emit.transpose(n.tensor("input"), (1, 0, 2)) if batch_first else n.tensor("input")
    finals: list[list[DraftOperand]] = []
    for directions in _layers(n):
        results = [_sequence(n, x, one) for one in directions]
        x = results[0][0] if len(results) == 1 else n.emit.op("concat", *(one[0] for one in results), axis=2)
        finals += [one[1] for one in results]
    y = n.emit.transpose(x, (1, 0, 2)) if batch_first else x
    stacked = [
        n.emit.op("stack", *states, axis=0) if len(states) > 1 else n.emit.op("unsqueeze", states[0], axes=(0,))
        for states in zip(*finals, strict=True)
    ]
    return (y, *stacked)


def _layers(n: AtenContext) -> list[list[_Direction]]:
    """The directions of every layer, with their weights in the order of the parameter list."""
    initial = n.tensors("hx") if word(n) == "lstm" else (n.tensor("hx"),)
    params = list(n.tensors("params"))
    has_biases, count = n.flag("has_biases", default=True), 2 if n.flag("bidirectional") else 1
    each = 4 if has_biases else 2
    layers = n.integer("num_layers", 1)
    if len(params) != each * layers * count:
        raise Unsupported("its weights have a projection, which has no translation", "use an LSTM without proj_size")
    found = []
    for layer in range(layers):
        directions = []
        for direction in range(count):
            place = layer * count + direction
            weights: tuple[DraftOperand | None, ...] = tuple(params[place * each : (place + 1) * each])
            states = tuple(n.emit.op("gather", one, extent(place)) for one in initial)
            directions.append(_Direction(weights, states, direction == 1))
        found.append(directions)
    return found


def _sequence(n: AtenContext, x: DraftOperand, own: _Direction) -> tuple[DraftOperand, list[DraftOperand]]:
    """All outputs [T, B, H] and the final states of one direction."""
    cell, activation = _CELLS[word(n)], "relu" if word(n) == "rnn_relu" else None
    length, batch, hidden = x.shape[0], x.shape[1], own.states[0].shape[-1]
    if is_same(length, 1):
        row = n.emit.op("squeeze", x, axes=(0,))
        now = n.emit.ops(cell, row, *own.states, *own.weights, activation=activation)
        return n.emit.op("unsqueeze", now[0], axes=(0,)), list(now)
    source = n.emit.value(x)
    states = [n.emit.variable(one, name) for one, name in zip(own.states, ("h", "c"), strict=False)]
    y = n.emit.declare(x.dtype, (length, batch, hidden), n.node.place if n.node.modules else "")
    index = n.emit.open_loop("time")
    at = place_in_time(index, length, is_reversed=own.is_reversed)
    row = DraftPart(source, (at, Slice(), Slice()), tuple(source.shape[1:]))
    n.emit.into(cell, tuple(states), row, *states, *own.weights, activation=activation)
    n.emit.copy(states[0], DraftPart(y, (at, Slice(), Slice()), (batch, hidden)))
    n.emit.close_loop("time", index, length)
    return y, list(states)
