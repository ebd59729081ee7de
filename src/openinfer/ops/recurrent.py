"""One step of recurrent networks, in PyTorch's layouts and order of gates.

The two products are contractions in the compute type; gates and states are computed in the next wider type from them
and rounded once.
"""

from collections.abc import Iterator
from math import inf, prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.cases import case, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import SUM, Call, Case, Cases, CostRule, OpCost, Param, ShapeRule, op
from openinfer.ops.shapes import bytes_moved, gamma, multiplied
from openinfer.ops.types import FLOATS, Shape, shape_error

FAMILY = "Recurrent"
CELL = "x: T, h: T, w_ih: T, w_hh: T, b_ih?: T, b_hh?: T -> T"
LSTM_CELL = "x: T, h: T, c: T, w_ih: T, w_hh: T, b_ih?: T, b_hh?: T -> h: T, c: T"
ACTIVATION = Param("activation", "str", "tanh", "The function of the new state.", choices=("tanh", "relu"))


# --- shapes and costs -------------------------------------------------------------------------------------------------


def _cell_shape(gates: int, states: int) -> ShapeRule:
    """``states`` tensors of one shape after ``x``; then weights and biases with ``gates`` times as many rows."""

    def shape(call: Call) -> tuple[Shape, ...]:
        x, state = call.shape(0), call.shape(1)
        if not x:
            raise shape_error(f"the last axis of 'x' has the features of the input, but it is {call.input(0)}", 0)
        wanted: list[tuple[str, Shape]] = [("h", (*x[:-1], *state[-1:]))]
        if states == 2:
            wanted.append(("c", state))
        rows = gates * (state[-1] if state else 0)
        wanted += [("w_ih", (rows, x[-1])), ("w_hh", (rows, *state[-1:])), ("b_ih", (rows,)), ("b_hh", (rows,))]
        for slot, (name, extents) in enumerate(wanted, start=1):
            kind = call.inputs[slot] if slot < len(call.inputs) else None
            if kind is not None and (kind.shape != extents or not state):
                known = f"'x' is {call.input(0)} and 'h' is {call.input(1)}"
                if not state:
                    raise shape_error(f"the last axis of 'h' has the features of the state, but {known}", 1)
                raise shape_error(f"{name!r} is {kind}, but has the shape {list(extents)} where {known}", slot)
        return (state,) * states

    return shape


def _cell_cost(gates: int, states: int) -> CostRule:
    """Two multiply-adds for each weight and batch element, and a little for each gate."""

    def cost(call: Call) -> OpCost:
        batch, features, state = prod(call.shape(0)[:-1]), call.shape(0)[-1], call.shape(1)[-1]
        flops = batch * gates * state * (2 * (features + state) + 12 * states)
        return OpCost(flops, *bytes_moved(call))

    return cost


def _cell_cases(gates: int, states: int, *params: dict[str, Any]) -> Cases:
    """Batches of several ranks and none, empty ones, biases present and absent."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        def operands(batch: Shape, features: int, state: int, biases: str = "11") -> list[Array | None]:
            rows = gates * state
            given: list[Array | None] = [random(rng, dtype, (*batch, features), -2, 2)]
            given += [random(rng, dtype, (*batch, state), -1, 1) for _ in range(states)]
            given += [random(rng, dtype, (rows, columns), -1, 1) for columns in (features, state)]
            return given + [random(rng, dtype, (rows,), -1, 1) if bias == "1" else None for bias in biases]

        for given in params or ({},):
            yield case(dtype, *operands((3,), 5, 4), **given)
            yield case(dtype, *operands((), 5, 4, "00"), **given)
            yield case(dtype, *operands((2, 3), 7, 3, "10"), **given)
            yield case(dtype, *operands((1,), 1, 1, "01"), **given)
            yield case(dtype, *operands((0,), 5, 4), **given)
            yield case(dtype, *operands((2,), 0, 3), **given)
            yield case(dtype, *operands((2,), 3, 0), **given)
            yield case(dtype, *operands((2,), 33, 17), **given)
            odd = operands((3,), 2, 2)
            odd[0] = np.array([[np.nan, 1], [np.inf, 0], [-np.inf, 1]]).astype(dtype.array)
            yield case(dtype, *odd, **given)
            big = operands((2,), 4, 4)
            big[1] = random(rng, dtype, (2, 4), -1000, 1000)
            yield case(dtype, *big, **given)

    return cases


# --- gates and their errors -------------------------------------------------------------------------------------------


def _product(x: Array, w: Array, bias: Array | None) -> Array:
    """``x * transpose(w) + bias``, the sum of both in the next wider type."""
    total = wide(np.matmul(x, w.T))
    if bias is not None:
        total += bias
    return total


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _split(gates: Array, count: int) -> list[Array]:
    """The gates, which lie one after the other along the last axis."""
    return np.split(gates, count, axis=-1)


def _product_bound(x: Array, w: Array, bias: Array | None, dtype: DType) -> Array:
    """The error of a product in any order of summation, with bias and the sum of two such.

    What an infinite operand leads to is exact, unless its finite neighbours pass the largest number in some order:
    then there may be two infinities of different signs, and the error is infinite.
    """

    def magnitude(*operands: Array | None) -> Array:
        own, weights, more = (0 if one is None else np.abs(one) for one in operands)
        return np.matmul(own, np.transpose(weights)) + more

    whole, finite = magnitude(x, w, bias), magnitude(_finite(x), _finite(w), None if bias is None else _finite(bias))
    passed = np.where(finite < dtype.maximum, 0, inf)
    return np.where(np.isfinite(whole), gamma(multiplied(w.shape[1]) + 4, dtype) * whole, passed)


def _finite(values: Array) -> Array:
    """Values, with 0 for those that are infinite or not a number."""
    return np.where(np.isfinite(values), values, 0)


def _times(error: Array, factor: Array, values: Array) -> Array:
    """The error of a factor times a value: infinite if that of the factor is, or if 0 may meet an infinity."""
    is_open = np.isinf(error) | (np.isinf(values) & (np.abs(factor) <= error))
    return np.where(is_open, inf, error * np.abs(_finite(values)))


def _lstm_bound(
    call: Call,
    x: Array,
    h: Array,
    c: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> Array:
    """For both outputs. A sigmoid passes on a quarter of an error at most, tanh all of it."""
    dtype = call.dtype().compute
    i, f, g, o = _split(_product_bound(x, w_ih, b_ih, dtype) + _product_bound(h, w_hh, b_hh, dtype), 4)
    forget = _sigmoid(_split(_product(x, w_ih, b_ih) + _product(h, w_hh, b_hh), 4)[1])
    own = gamma(16, dtype) + gamma(8, dtype) * np.abs(_finite(c))
    return _times(f / 4 + gamma(8, dtype), forget, c) + i / 4 + g + o / 4 + own


@op(
    FAMILY,
    LSTM_CELL,
    shape=_cell_shape(4, 2),
    cost=_cell_cost(4, 2),
    tolerance=SUM,
    cases=_cell_cases(4, 2),
    bound=_lstm_bound,
    T=FLOATS,
)
def lstm_cell(
    _call: Call,
    x: Array,
    h: Array,
    c: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> tuple[Array, Array]:
    """One step of an LSTM, `c' = f * c + i * g` and `h' = o * tanh(c')`.

    The gates are the four parts, in the order i, f, g, o, of `x * transpose(w_ih) + b_ih + h * transpose(w_hh) + b_hh`,
    through tanh for g and a sigmoid for the others. `x` is [..., features], `h` and `c` are [..., state], `w_ih` is
    [4 * state, features], `w_hh` [4 * state, state], both biases [4 * state]. `h'` comes from the unrounded `c'`.
    """
    gates = _product(x, w_ih, b_ih) + _product(h, w_hh, b_hh)
    i, f, g, o = _split(gates, 4)
    state = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(state), state


def _gru_bound(
    call: Call,
    x: Array,
    h: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> Array:
    dtype = call.dtype().compute
    inside, outside = (_split(_product_bound(*one, dtype), 3) for one in ((x, w_ih, b_ih), (h, w_hh, b_hh)))
    own, hidden = (_split(_product(*one), 3) for one in ((x, w_ih, b_ih), (h, w_hh, b_hh)))
    reset, update = ((inside[gate] + outside[gate]) / 4 + gamma(8, dtype) for gate in (0, 1))
    candidate = inside[2] + outside[2] + _times(reset, _sigmoid(own[0] + hidden[0]), hidden[2])
    return candidate + _times(update + gamma(16, dtype), _sigmoid(own[1] + hidden[1]), h) + update + gamma(16, dtype)


@op(
    FAMILY,
    CELL,
    shape=_cell_shape(3, 1),
    cost=_cell_cost(3, 1),
    tolerance=SUM,
    cases=_cell_cases(3, 1),
    bound=_gru_bound,
    T=FLOATS,
)
def gru_cell(
    _call: Call,
    x: Array,
    h: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> Array:
    """One step of a GRU, `h' = (1 - z) * n + z * h` with `n = tanh(a_n + r * b_n)`.

    `a = x * transpose(w_ih) + b_ih` and `b = h * transpose(w_hh) + b_hh` have three parts, in the order r, z, n;
    `r = sigmoid(a_r + b_r)`, `z = sigmoid(a_z + b_z)`. `x` is [..., features], `h` is [..., state], `w_ih` is
    [3 * state, features], `w_hh` [3 * state, state], both biases [3 * state].
    """
    inside, outside = _split(_product(x, w_ih, b_ih), 3), _split(_product(h, w_hh, b_hh), 3)
    reset, update = _sigmoid(inside[0] + outside[0]), _sigmoid(inside[1] + outside[1])
    candidate = np.tanh(inside[2] + reset * outside[2])
    return (1 - update) * candidate + update * h


def _rnn_bound(
    call: Call,
    x: Array,
    h: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> Array:
    dtype = call.dtype().compute
    return _product_bound(x, w_ih, b_ih, dtype) + _product_bound(h, w_hh, b_hh, dtype) + gamma(4, dtype)


@op(
    FAMILY,
    CELL,
    ACTIVATION,
    shape=_cell_shape(1, 1),
    cost=_cell_cost(1, 1),
    tolerance=SUM,
    cases=_cell_cases(1, 1, {"activation": "tanh"}, {"activation": "relu"}),
    bound=_rnn_bound,
    T=FLOATS,
)
def rnn_cell(
    call: Call,
    x: Array,
    h: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> Array:
    """One step of a plain recurrent network, `h' = f(x * transpose(w_ih) + b_ih + h * transpose(w_hh) + b_hh)`.

    `f` is tanh, or max(0, .) for relu. `x` is [..., features], `h` is [..., state], `w_ih` is [state, features], `w_hh`
    [state, state], both biases [state].
    """
    total = _product(x, w_ih, b_ih) + _product(h, w_hh, b_hh)
    return np.tanh(total) if call.params["activation"] == "tanh" else np.maximum(total, 0)
