"""Sampling against a plain Python implementation of what its documentation says, and against its probabilities."""

from math import factorial, floor, inf, nan
from typing import Any

import numpy as np
import pytest
from scipy import special, stats
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import GraphError
from openinfer.ops import apply
from openinfer.ops.sample import weights_of

MASK = 2**64 - 1


def random_bits(seed: int, row: int) -> int:
    z = (seed + (row + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def weight(logit: float, largest: float, temperature: float) -> int:
    if logit == largest:
        return 1 << 32
    s = (logit - largest) / temperature * 1.4426950408889634
    if s < -40:
        return 0
    n = round(s)
    g = (s - n) * 0.6931471805599453
    p = 1 / factorial(11)
    for term in range(10, -1, -1):
        p = p * g + 1 / factorial(term)
    return round(p * 2.0 ** (n + 32)) if n >= -34 else 0


def pick(logits: list[float], seed: int, row: int, temperature: float, top_k: int, top_p: float) -> int:
    order = sorted(range(len(logits)), key=lambda at: -logits[at])
    largest = logits[order[0]]
    if temperature == 0:
        return logits.index(largest)
    weights = [weight(logit, largest, temperature) for logit in logits]
    order = order[: top_k or None]
    goal, gone = top_p * float(sum(weights[at] for at in order)), 0
    kept: list[int] = []
    for at in order:
        if not kept or gone < goal:
            kept.append(at)
        gone += weights[at]
    u = (random_bits(seed, row) >> 11) * 2.0**-53
    drawn, seen = floor(u * float(sum(weights[at] for at in kept))), 0
    for at in sorted(kept):
        seen += weights[at]
        if seen > drawn:
            return at
    raise AssertionError


def judge(question: Question) -> Any:
    logits, seed = question.wide
    table = logits.reshape(-1, logits.shape[-1]).astype(np.float64).tolist()
    found = [pick(row, int(seed), number, **question.params) for number, row in enumerate(table)]
    return np.array(found, np.int64).reshape(logits.shape[:-1])


JUDGES: dict[str, Judge] = {"sample": judge}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_its_definition(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def row(*values: float) -> Any:
    return np.array(values, np.float32)


def seeded(seed: int) -> Any:
    return np.array(seed, np.int64)


def frequencies(logits: Any, count: int, **params: Any) -> Any:
    found = apply("sample", np.broadcast_to(logits, (count, logits.size)).copy(), seeded(7), **params)
    return np.bincount(found, minlength=logits.size)


LOGITS = row(0.5, -1, 2, 0, -3, 1.5)


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"temperature": 2.5}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 3}, [0, 2, 5]),
        ({"top_p": 0.7}, [2, 5]),  # 0.475 + 0.288
        ({"top_k": 4, "top_p": 0.9, "temperature": 1.5}, [0, 2, 3, 5]),
    ],
)
def test_indices_come_up_as_often_as_their_probability(params: dict[str, Any], kept: list[int]) -> None:
    count = 100_000
    found = frequencies(LOGITS, count, **params)
    assert found.sum() == found[kept].sum() == count
    chances = special.softmax(LOGITS[kept].astype(np.float64) / params.get("temperature", 1))
    assert stats.chisquare(found[kept], chances * count).pvalue > 0.001


def test_one_seed_after_the_other_draws_evenly() -> None:
    found = [int(apply("sample", np.zeros(5, np.float32), seeded(seed))) for seed in range(2000)]
    assert stats.chisquare(np.bincount(found, minlength=5)).pvalue > 0.001
    pairs = np.array(found[:-1]) * 5 + np.array(found[1:])
    assert stats.chisquare(np.bincount(pairs, minlength=25)).pvalue > 0.001


def test_the_random_numbers_are_those_of_splitmix64() -> None:
    """The published sequence of the seed 1234567, through the indices of 2**21 equal weights."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    found = apply("sample", np.zeros((4, 1 << 21), np.float16), seeded(1234567))
    assert found.tolist() == [number >> 43 for number in published]


def test_weights_are_the_exponentials_to_the_bit() -> None:
    logits = np.linspace(-26, 0, 4999)
    for temperature in (0.1, 1.0, 3.0):
        found = weights_of(logits[None], np.zeros((1, 1)), temperature)[0]
        exact = np.exp(logits / temperature) * 2**32
        assert np.all(np.abs(found - exact) <= 0.5 + exact * 2**-44)
        assert found.tolist() == [weight(logit, 0.0, temperature) for logit in logits.tolist()]


def test_the_seed_is_extended_with_its_sign() -> None:
    logits = np.zeros((40, 100), np.float32)
    drawn = [
        apply("sample", logits, np.array(seed, kind)).tolist()
        for seed, kind in ((-1, np.int32), (-1, np.int64), (2**64 - 1, np.uint64), (2**32 - 1, np.uint32))
    ]
    assert drawn[0] == drawn[1] == drawn[2] != drawn[3]


def test_a_temperature_of_zero_and_the_first_candidate() -> None:
    logits = row(1, 3, 3, 0)
    assert apply("sample", logits, seeded(0), temperature=0) == 1
    assert {int(apply("sample", logits, seeded(seed), top_k=1)) for seed in range(9)} == {1}
    assert {int(apply("sample", logits, seeded(seed), top_p=0)) for seed in range(9)} == {1}
    assert {int(apply("sample", logits, seeded(seed), top_k=2)) for seed in range(20)} == {1, 2}


def test_infinite_logits() -> None:
    drawn = {int(apply("sample", row(inf, 3, inf, -inf), seeded(seed))) for seed in range(40)}
    assert drawn == {0, 2}
    assert int(apply("sample", row(-inf, -1000, -inf), seeded(1))) == 1


def test_half_of_the_probability_is_reached_exactly() -> None:
    """Two of four equal weights are exactly one half: a third one is not needed."""
    drawn = {int(apply("sample", np.zeros(4, np.float32), seeded(seed), top_p=0.5)) for seed in range(60)}
    assert drawn == {0, 1}


def test_the_smallest_random_number_does_not_pick_a_weight_of_zero() -> None:
    """Splitmix64 maps 0 to 0: this seed draws u = 0 for the first row."""
    seed = np.array(2**64 - 0x9E3779B97F4A7C15, np.uint64)
    assert random_bits(int(seed), 0) == 0
    assert apply("sample", row(-inf, 0, -inf), seed) == 1
    assert apply("sample", row(0, 0), seed) == 0


ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("logits", "seed", "params", "code", "message"),
    [
        (np.float32(1), 0, {}, "E308", "the last axis of 'logits' has 1 to 2097152 elements, but it is f32"),
        (np.ones((2, 0), np.float32), 0, {}, "E308", "but it is f32[2, 0]"),
        (np.ones((1, (1 << 21) + 1), np.float16), 0, {}, "E308", "but it is f16[1, 2097153]"),
        (ONES, [1, 2], {}, "E308", "'seed' is one integer, not i64[2]"),
        (ONES, 0, {"temperature": -1}, "E310", "'temperature' is a finite number of at least 0, not -1.0"),
        (ONES, 0, {"temperature": inf}, "E310", "not inf"),
        (ONES, 0, {"temperature": nan}, "E310", "not nan"),
        (ONES, 0, {"top_k": -1}, "E310", "'top_k' is at least 0, not -1"),
        (ONES, 0, {"top_p": 1.5}, "E310", "'top_p' is from 0 to 1, not 1.5"),
        (ONES, 0, {"top_p": nan}, "E310", "'top_p' is from 0 to 1, not nan"),
        (np.array([[0, 1], [0, nan]], np.float32), 0, {}, "E313", "row 1 of the 2 rows of logits has a NaN"),
        (row(nan, 1), 0, {"temperature": 0}, "E313", "row 0 of the 1 row of logits has a NaN"),
        (row(-inf, -inf), 0, {}, "E313", "is -inf everywhere: there is nothing to pick"),
    ],
)
def test_refuses(logits: Any, seed: Any, params: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        apply("sample", np.asarray(logits), np.array(seed, np.int64), **params)
    assert caught.value.code == code
    assert message in caught.value.message


def test_refuses_seeds_that_are_not_integers() -> None:
    with pytest.raises(GraphError) as caught:
        apply("sample", ONES, np.float32(1))
    assert caught.value.code == "E307"
    assert "the input 'seed' of 'sample' cannot be f32" in caught.value.message
