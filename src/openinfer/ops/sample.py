"""Sampling an index from logits: deterministic, and defined down to the bit.

Probabilities become integer weights, whose sums are exact in any order; the exponential and the random number are
defined by IEEE f64 operations and 64-bit integers, so that every implementation can come to the same index.
"""

from collections.abc import Iterator
from math import factorial, inf
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import random
from openinfer.ops.record import EXACT, Call, Case, Param, op
from openinfer.ops.shapes import per_input
from openinfer.ops.types import FLOATS, I64, Shape, dtypes, parameter_error, shape_error, value_error

SEEDS = dtypes("i32 i64 u32 u64")
TEMPERATURE = Param("temperature", "float", 1.0, "What logits are divided by; 0 picks the largest.")
TOP_K = Param("top_k", "int", 0, "How many of the largest logits are candidates; 0 for all.")
TOP_P = Param("top_p", "float", 1.0, "The share of the probability that the candidates must reach.")

_UNIT = 32
"""Weights are integers up to 2**32: a logit that is 2**33 times less likely than the largest is never picked."""
_MOST = 1 << 21
"""The most weights: their sum is at most 2**53, and f64 holds every integer up to that."""
_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_DEGREE = 11


def _rows(call: Call) -> tuple[Shape, ...]:
    logits, params = call.shape(0), call.params
    if not logits or not 0 < logits[-1] <= _MOST:
        raise shape_error(f"the last axis of 'logits' has 1 to {_MOST} elements, but it is {call.input(0)}", 0)
    if call.shape(1):
        raise shape_error(f"'seed' is one integer, not {call.input(1)}", 1)
    if not 0 <= params["temperature"] < inf:
        message = f"'temperature' is a finite number of at least 0, not {params['temperature']}"
        raise parameter_error("temperature", message)
    if params["top_k"] < 0:
        raise parameter_error("top_k", f"'top_k' is at least 0, not {params['top_k']}")
    if not 0 <= params["top_p"] <= 1:
        raise parameter_error("top_p", f"'top_p' is from 0 to 1, not {params['top_p']}")
    return (logits[:-1],)


def uniform(seed: int, count: int) -> Array:
    """One number in 0..1 for each row, the multiples of 2**-53 that splitmix64 gives.

    >>> uniform(0, 1).tolist() == [(0xE220A8397B1DCDAF >> 11) / 2**53]
    True
    """
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed % 2**64)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def weights_of(logits: Array, largest: Array, temperature: float) -> Array:
    """``rint(2**32 * exp((logits - largest) / temperature))`` in the arithmetic that the op documents.

    >>> weights_of(np.array([[0.0, -1.0]]), np.array([[0.0]]), 1.0).tolist()
    [[4294967296.0, 1580030169.0]]
    """
    scaled = (logits - largest) / temperature * _LOG2_E
    scaled[logits == largest] = 0  # which inf - inf is not
    whole = np.rint(scaled)
    # Below the last weight that is not 0 nothing is computed; this also keeps -inf out of the polynomial.
    tiny = whole < -_UNIT - 2
    whole[tiny] = 0
    part = np.where(tiny, 0, scaled - whole) * _LN_2
    power = np.full_like(part, 1 / factorial(_DEGREE))
    for term in range(_DEGREE - 1, -1, -1):
        power *= part
        power += 1 / factorial(term)
    found = np.rint(np.ldexp(power, whole.astype(np.int32) + _UNIT))
    found[tiny] = 0
    return found


def _keep(logits: Array, weights: Array, top_k: int, top_p: float) -> None:
    """Set the weights of all but the candidates to 0, in place."""
    count = logits.shape[-1]
    # Backwards twice: the largest first, of equal ones that with the lower index.
    order = (count - 1 - np.argsort(logits[:, ::-1], axis=-1, kind="stable"))[:, ::-1]
    if 0 < top_k < count:
        np.put_along_axis(weights, order[:, top_k:], 0, axis=-1)
    if top_p < 1:
        ordered = np.take_along_axis(weights, order, axis=-1)
        before = np.cumsum(ordered, axis=-1) - ordered
        total = np.sum(ordered, axis=-1, keepdims=True)
        ordered[:, 1:][before[:, 1:] >= top_p * total] = 0
        np.put_along_axis(weights, order, ordered, axis=-1)


def _require_candidates(rows: Array, largest: Array) -> None:
    for bad, what in ((np.isnan(largest), "has a NaN"), (largest == -inf, "is -inf everywhere")):
        if np.any(bad):
            row = int(np.flatnonzero(bad)[0])
            raise value_error(
                f"row {row} of the {counted(rows.shape[0], 'row')} of logits {what}: there is nothing to pick", 0
            )


_CHOICES: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.25},
    {"temperature": 1e-30},
    {"temperature": 1e30},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 99},
    {"top_p": 0.0},
    {"top_p": 0.5},
    {"top_p": 0.999},
    {"top_k": 12, "top_p": 0.75, "temperature": 2.0},
)


def _cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    def draw(logits: Array, seed: int, kind: DType = I64, **params: Any) -> Case:
        return Case((logits, np.array(seed, kind.array)), (dtype, kind), params)

    for shape in ((1,), (7,), (3, 5), (2, 3, 17), (0, 4), (2, 0, 3), (300, 6)):
        yield draw(random(rng, dtype, shape), 5)
    logits = random(rng, dtype, (40, 33), -3, 3)
    for params in _CHOICES:
        yield draw(logits, 11, **params)
    for kind in SEEDS:
        for seed in (0, int(kind.minimum), int(kind.maximum)):
            yield draw(logits, seed, kind)
    yield draw(np.zeros((50, 9), dtype.array), 3, top_p=0.5)
    odd = np.array([[-np.inf, 0, 1], [np.inf, 0, np.inf], [-np.inf, -3, -np.inf], [0, -0.0, -50]]).astype(dtype.array)
    for seed in range(5):
        yield draw(odd, seed)
        yield draw(odd, seed, top_k=2)
    ends = np.array([dtype.maximum, -dtype.maximum, 0, dtype.maximum]).astype(dtype.array)
    yield draw(ends, 1)
    yield draw(ends, 1, temperature=0.0)


@op(
    "Sample",
    "logits: T, seed: S -> i64",
    TEMPERATURE,
    TOP_K,
    TOP_P,
    shape=_rows,
    cost=per_input(40),
    tolerance=EXACT,
    cases=_cases,
    T=FLOATS,
    S=SEEDS,
)
def sample(call: Call, logits: Array, seed: Array) -> Array:
    """An index along the last axis of logits, drawn with the probability `softmax(logits / temperature)`.

    Everything is f64 without contraction. With `m` the largest logit of a row, `s = ((logit - m) / temperature) *
    1.4426950408889634` (0 where `logit = m`), `n = rint(s)` and `p` the polynomial `1 + g/1! + ... + g**11/11!` of `g
    = (s - n) * 0.6931471805599453`, by Horner's rule with the coefficients rounded, a logit has the weight `w = rint(p
    * 2**(n + 32))`, or 0 where `n < -34`: an integer close to `exp((logit - m) / temperature) * 2**32`, so that sums
    of weights are exact in any order. In the order of descending logits, equal ones by index, `top_k` keeps the first
    k (all for 0). Then `top_p` keeps those before which less than `top_p` times the sum of the weights left has gone,
    and always the first. The random number of row r, counted from 0 over all leading axes, is splitmix64 modulo 2**64:
    `z = seed + (r + 1) * 0x9E3779B97F4A7C15`, `z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9`, `z = (z ^ (z >> 27)) *
    0x94D049BB133111EB`, `z = z ^ (z >> 31)`, `u = (z >> 11) * 2**-53`; seeds are sign-extended to 64 bits. The result
    is the lowest index up to which the weights kept sum to more than `floor(u * W)`, W being the sum of them all. A
    temperature of 0 gives the first of the largest logits. A row with a NaN, or with -inf only, is an error.
    """
    params = call.params
    rows = logits.reshape(-1, logits.shape[-1]).astype(np.float64)
    largest = np.max(rows, axis=-1, keepdims=True)
    _require_candidates(rows, largest)
    if params["temperature"] == 0:
        return np.argmax(rows, axis=-1).reshape(logits.shape[:-1])
    weights = weights_of(rows, largest, params["temperature"])
    if params["top_k"] or params["top_p"] < 1:
        _keep(rows, weights, params["top_k"], params["top_p"])
    sums = np.cumsum(weights, axis=-1)
    drawn = np.floor(uniform(int(seed), rows.shape[0]) * sums[:, -1])
    return np.argmax(sums > drawn[:, None], axis=-1).reshape(logits.shape[:-1])
