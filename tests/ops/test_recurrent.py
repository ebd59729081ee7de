"""Recurrent cells against PyTorch in f64."""

import os
from math import prod
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import GraphError
from openinfer.ops import OPS, Call, TensorType, apply, complete

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
import torch


def torch_cell(question: Question, states: int, cell: Any) -> Any:
    """PyTorch's own cell on a batch of one axis, in f64; a bias left out is one of zeros."""
    arrays: list[Any] = [None if array is None else torch.tensor(array.astype(np.float64)) for array in question.wide]
    x, *given = arrays
    leading = x.shape[:-1]
    count, size = prod(leading), given[0].shape[-1]
    if 0 in (count, size):
        answers = [given[0]] * states
    else:
        rows = given[states].shape[0]
        weights = [given[states], given[states + 1]]
        weights += [torch.zeros(rows, dtype=torch.float64) if bias is None else bias for bias in given[states + 2 :]]
        held = [state.reshape(count, size) for state in given[:states]]
        found = cell(x.reshape(count, x.shape[-1]), held if states > 1 else held[0], *weights)
        answers = [one.reshape(*leading, size) for one in (found if states > 1 else [found])]
    return tuple(answer.numpy() for answer in answers)


def rnn(question: Question) -> Any:
    cell = torch.rnn_tanh_cell if question.params["activation"] == "tanh" else torch.rnn_relu_cell
    return torch_cell(question, 1, cell)


JUDGES: dict[str, Judge] = {
    "lstm_cell": lambda question: torch_cell(question, 2, torch.lstm_cell),
    "gru_cell": lambda question: torch_cell(question, 1, torch.gru_cell),
    "rnn_cell": rnn,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_pytorch(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def biased(*values: float) -> Any:
    return np.array(values, np.float32)


def test_the_gates_of_an_lstm_in_order() -> None:
    """Gates are forced open (100) or shut (-100) by the bias: i, f, g, o."""
    x, h, c, w_ih, w_hh = floats(1), floats(1), biased(0.5), floats(4, 1), floats(4, 1)
    _, keeps = apply("lstm_cell", x, h, c, w_ih, w_hh, biased(-100, 100, 100, 100))
    _, takes = apply("lstm_cell", x, h, c, w_ih, w_hh, biased(100, -100, 100, 100))
    silent, _ = apply("lstm_cell", x, h, c, w_ih, w_hh, biased(100, 100, 100, -100))
    assert (float(keeps[0]), float(takes[0])) == (0.5, 1)
    assert abs(silent[0]) < 1e-30


def test_the_gates_of_a_gru_in_order() -> None:
    """r shuts the hidden part of n off, z keeps the old state."""
    x, h, w_ih, w_hh = floats(1), biased(0.5), floats(3, 1), floats(3, 1)
    assert apply("gru_cell", x, h, w_ih, w_hh, biased(0, 100, 0)).tolist() == [0.5]
    assert abs(apply("gru_cell", x, h, w_ih, w_hh, biased(-100, -100, 0), biased(0, 0, 100))[0]) < 1e-30
    assert apply("gru_cell", x, h, w_ih, w_hh, biased(100, -100, 0), biased(0, 0, 100)).tolist() == [1]


def test_relu_keeps_nan() -> None:
    x = biased(np.nan)
    assert np.isnan(apply("rnn_cell", x, floats(1), np.ones((1, 1), np.float32), floats(1, 1), activation="relu"))


@pytest.mark.parametrize(("name", "gates"), [("rnn_cell", 1), ("gru_cell", 3), ("lstm_cell", 4)])
def test_sums_beside_an_infinity_may_overflow_in_another_order(name: str, gates: int) -> None:
    """``inf - huge - huge`` is an infinity, but NaN for those who add the two numbers first."""
    record = OPS[name]
    states = [np.zeros(1)] * (2 if name == "lstm_cell" else 1)
    huge = np.finfo(np.float64).max

    def bounds(*x: float) -> np.ndarray[Any, Any]:
        operands = [np.array(x), *states, np.ones((gates, len(x))), np.zeros((gates, 1))]
        call = Call(tuple(TensorType(DTYPES["f64"], one.shape) for one in operands), complete(record, {}))
        assert record.bound is not None
        with np.errstate(all="ignore"):
            return np.asarray(record.bound(call, *(one.astype(np.longdouble) for one in operands)))

    assert np.isinf(bounds(np.inf, -huge, -huge)).all()
    assert np.isfinite(bounds(np.inf, -1, -1)).all()


@pytest.mark.parametrize("name", ["gru_cell", "lstm_cell"])
def test_a_gate_that_may_be_zero_beside_an_infinity_leaves_anything(name: str) -> None:
    """A sigmoid of -200 is a number in a wider type only; the product of 0 and an infinity is no number."""
    record, f32 = OPS[name], DTYPES["f32"]

    def bounds(x: float) -> np.ndarray[Any, Any]:
        if name == "gru_cell":
            operands = [np.array([x]), np.ones(1), np.ones((3, 1)), np.array([[0], [0], [np.inf]])]
        else:
            operands = [np.array([x]), np.zeros(1), np.array([np.inf]), np.ones((4, 1)), np.zeros((4, 1))]
        call = Call(tuple(TensorType(f32, one.shape) for one in operands), complete(record, {}))
        assert record.bound is not None
        with np.errstate(all="ignore"):
            return np.asarray(record.bound(call, *(one.astype(np.float64) for one in operands)))

    assert np.isinf(bounds(-200)).all()
    assert np.isfinite(bounds(200)).all()


LSTM = (floats(2, 3), floats(2, 4), floats(2, 4), floats(16, 3), floats(16, 4), floats(16), floats(16))
GRU = (floats(2, 3), floats(2, 4), floats(12, 3), floats(12, 4), floats(12), floats(12))
RNN = (floats(2, 3), floats(2, 4), floats(4, 3), floats(4, 4), floats(4), floats(4))
KNOWN = "where 'x' is f32[2, 3] and 'h' is f32[2, 4]"


@pytest.mark.parametrize(
    ("name", "operands", "slot", "wrong", "message"),
    [
        ("lstm_cell", LSTM, 0, floats(), "the last axis of 'x' has the features of the input, but it is f32"),
        ("lstm_cell", LSTM, 1, floats(), "the last axis of 'h' has the features of the state"),
        ("lstm_cell", LSTM, 1, floats(3, 4), "'h' is f32[3, 4], but has the shape [2, 4]"),
        ("lstm_cell", LSTM, 2, floats(4), f"'c' is f32[4], but has the shape [2, 4] {KNOWN}"),
        ("lstm_cell", LSTM, 3, floats(3, 16), f"'w_ih' is f32[3, 16], but has the shape [16, 3] {KNOWN}"),
        ("gru_cell", GRU, 3, floats(12, 3), f"'w_hh' is f32[12, 3], but has the shape [12, 4] {KNOWN}"),
        ("gru_cell", GRU, 4, floats(4), f"'b_ih' is f32[4], but has the shape [12] {KNOWN}"),
        ("rnn_cell", RNN, 5, floats(1), f"'b_hh' is f32[1], but has the shape [4] {KNOWN}"),
    ],
)
def test_refuses_shapes(name: str, operands: tuple[Any, ...], slot: int, wrong: Any, message: str) -> None:
    apply(name, *operands)
    with pytest.raises(GraphError) as caught:
        apply(name, *operands[:slot], wrong, *operands[slot + 1 :])
    assert caught.value.code == "E308"
    assert message in caught.value.message


def test_refuses_an_activation_it_does_not_have() -> None:
    with pytest.raises(GraphError) as caught:
        apply("rnn_cell", *RNN, activation="sigmoid")
    assert caught.value.code == "E310"
    assert """'activation' of 'rnn_cell' is "tanh" or "relu", not "sigmoid\"""" in caught.value.message


def test_every_op_of_the_module_has_a_judge() -> None:
    assert {record.name for record in OPS.values() if record.family == "Recurrent"} == set(JUDGES)
