"""``--input NAME=VALUE``: what a value can be, and the arrays it comes to.

* ``@x.npy`` or ``@f.npz:key``: an array, the same in every step; with ``[]`` behind it, step i takes slice i of the
  first axis;
* ``zeros``, ``ones``, ``arange``: the same in every step;
* ``randn:SEED``, ``uniform:SEED``, ``randint:SEED``, ``randint:SEED:LOW..HIGH``: other numbers in every step, always
  those of ``numpy.random.default_rng([SEED, step])`` with steps counted from 0;
* JSON: a list, or a number (also ``true``, ``nan``, ``-inf``) that fills the input.
"""

import json
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from math import isinf, prod
from typing import Any, Protocol

import numpy as np
import typer

from openinfer.check.bound import BoundVar
from openinfer.check.inserted import accepted_array
from openinfer.cli.arrays import open_array, split_place
from openinfer.dtypes import Array, DType, convert
from openinfer.errors import Code, Diagnostic, ExecutionError, counted
from openinfer.ops import Shape
from openinfer.tensor import storage_bytes

FeedRule = Callable[[np.random.Generator, Shape], Array]
FORMS = "@x.npy, @f.npz:key, randn:SEED, uniform:SEED, randint:SEED[:LOW..HIGH], zeros, ones, arange, or JSON"
_NUMBER = "[0-9]{1,18}"
_RANDOM = re.compile(rf"(randn|uniform|randint):({_NUMBER})(?::(-?{_NUMBER})\.\.(-?{_NUMBER}))?")
_LARGEST_EXACT = 1 << 53
"""Up to here every integer is a float of 64 bits."""
_WORDS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


# --- what an option says ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FromFile:
    """An array in a file; one slice of its first axis per step where it is ``sliced``."""

    path: str
    key: str | None
    sliced: bool


@dataclass(frozen=True)
class FeedLiteral:
    """A number or nested lists of numbers, as JSON has them."""

    value: Any


@dataclass(frozen=True)
class Generated:
    """Numbers made by rule: ``zeros``, ``ones``, ``arange``, ``randn``, ``uniform`` or ``randint``."""

    rule: str
    seed: int = 0
    limits: tuple[int, int] | None = None


Feed = FromFile | FeedLiteral | Generated


def parsed_inputs(texts: Iterable[str] | None) -> dict[str, Feed]:
    """Feeds from ``NAME=VALUE`` options; a malformed one is wrong usage.

    >>> parsed_inputs(["x=randn:7", "k=[1, 2]"])
    {'x': Generated(rule='randn', seed=7, limits=None), 'k': FeedLiteral(value=[1, 2])}
    """
    found: dict[str, Feed] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise _bad_option(text, f"write it as NAME=VALUE, where the value is {FORMS}")
        if name in found:
            raise _bad_option(text, f"the input {name!r} is given twice")
        found[name] = _feed(text, value)
    return found


def _feed(text: str, value: str) -> Feed:
    if value.startswith("@"):
        path, key = split_place(value[1:].removesuffix("[]"))
        if not path:
            raise _bad_option(text, "the name of the file is missing")
        return FromFile(path, key, value.endswith("[]"))
    if value in ("zeros", "ones", "arange"):
        return Generated(value)
    random = _RANDOM.fullmatch(value)
    if random is not None:
        return _random(text, *random.groups())
    return FeedLiteral(_WORDS[value] if value in _WORDS else _json_value(text, value))


def _random(text: str, rule: str, seed: str, low: str | None, high: str | None) -> Generated:
    if low is None or high is None:
        return Generated(rule, int(seed))
    if rule != "randint":
        raise _bad_option(text, f"{rule} takes a seed and nothing else")
    if int(low) >= int(high):
        raise _bad_option(text, f"there is no integer from {low} up to, not including, {high}")
    return Generated(rule, int(seed), (int(low), int(high)))


def _json_value(text: str, value: str) -> Any:
    try:
        found = json.loads(value, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise _bad_option(text, f"a value is {FORMS}") from error
    if not isinstance(found, bool | int | float | list):
        raise _bad_option(text, "JSON values are numbers, true, false, and lists of them")
    return found


def _finite(digits: str) -> float:
    if isinf(float(digits)):
        message = f"{digits:.60} is too large"
        raise ValueError(message)
    return float(digits)


def _bad_option(text: str, reason: str) -> typer.BadParameter:
    return typer.BadParameter(f"cannot understand {text[:200]!r}: {reason}", param_hint="--input")


# --- what it comes to -------------------------------------------------------------------------------------------------


class Supply(Protocol):
    """The values of one input."""

    steps: int | None
    """For how many steps there are values; None is for any number."""
    shape: Shape | None
    """The shape that the values have by themselves; None where they take any."""

    def value(self, step: int, shape: Shape) -> Array:
        """The value in a step, of this shape."""


def supply(variable: BoundVar, feed: Feed, resources: ExitStack) -> Supply:
    """What a feed gives a variable. Files are opened, and closed with the resources."""
    match feed:
        case FromFile():
            return _FileSupply(variable, feed, resources)
        case FeedLiteral(value):
            return _LiteralSupply(variable, value)
        case Generated():
            return _GeneratedSupply(variable, feed)


class _FileSupply:
    def __init__(self, variable: BoundVar, feed: FromFile, resources: ExitStack) -> None:
        self._variable = variable
        self._path = feed.path
        self._tensor = open_array(feed.path, feed.key, variable.name, resources)
        self._kept: Array | None = None
        whole = self._tensor.shape
        if feed.sliced and not whole:
            message = f"{feed.path!r} holds a single number, which has no slice for each step"
            raise ExecutionError(Diagnostic(Code.BAD_SHAPE, message, None, "leave out the []"))
        self.steps: int | None = whole[0] if feed.sliced else None
        self.shape: Shape | None = whole[1:] if feed.sliced else whole

    def value(self, step: int, shape: Shape) -> Array:
        count = prod(shape)
        if self.steps is None:
            if self._kept is None:
                self._kept = self._tensor.values(0, count).reshape(shape)
            return self._kept
        if step >= self.steps:
            message = (
                f"{self._path!r} has values of {self._variable.name!r} for {counted(self.steps, 'step')}, not for more"
            )
            raise ExecutionError(Diagnostic(Code.NOT_INSERTED, message))
        return self._tensor.values(step * count, count).reshape(shape)


class _LiteralSupply:
    """Lists have a shape; a number fills whatever it is for."""

    steps: int | None = None

    def __init__(self, variable: BoundVar, value: Any) -> None:
        self._value = accepted_array(variable.name, value, variable.dtype)
        self.shape: Shape | None = self._value.shape if isinstance(value, list) else None

    def value(self, step: int, shape: Shape) -> Array:
        del step
        return np.broadcast_to(self._value, shape)


class _GeneratedSupply:
    steps: int | None = None
    shape: Shape | None = None

    def __init__(self, variable: BoundVar, feed: Generated) -> None:
        self._dtype = variable.dtype
        self._seed = feed.seed
        self._made = _rule(variable, feed)

    def value(self, step: int, shape: Shape) -> Array:
        if storage_bytes(self._dtype, shape) is None:
            message = f"{self._dtype.name}{list(shape)} is larger than any machine can hold"
            raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, message))
        return self._made(np.random.default_rng([self._seed, step]), shape)


def _rule(variable: BoundVar, feed: Generated) -> FeedRule:
    """How to make the values. What the dtype does not have is refused here or, at the latest, on insertion."""
    dtype = variable.dtype
    match feed.rule:
        case "zeros" | "ones":
            element = accepted_array(variable.name, np.int64(feed.rule == "ones"), dtype)
            return lambda _random, shape: np.broadcast_to(element, shape)
        case "arange":
            return lambda _random, shape: np.arange(prod(shape), dtype=_exact(dtype)).reshape(shape)
        case "randint":
            return _integers(variable, feed)
    if dtype.kind != "float":
        raise _unfit(variable, f"{feed.rule} gives real numbers", f"randint:{feed.seed}")
    if feed.rule == "randn":
        return lambda random, shape: convert(np.asarray(random.standard_normal(shape)), dtype)
    return lambda random, shape: convert(np.asarray(random.random(shape)), dtype)


def _exact(dtype: DType) -> type[np.generic]:
    """A type for integers on their way into a dtype: insertion compares floats with floats quickly."""
    return np.float64 if dtype.kind == "float" else np.int64


def _integers(variable: BoundVar, feed: Generated) -> FeedRule:
    dtype, limits = variable.dtype, feed.limits
    if limits is None and dtype.kind == "float":
        raise _unfit(variable, "randint has no limits of its own there", f"randint:{feed.seed}:0..10")
    if limits is None and dtype.values is not None:
        values = np.array(dtype.values)
        return lambda random, shape: values[random.integers(0, len(values), shape)]
    low, last = (int(dtype.minimum), int(dtype.maximum)) if limits is None else (limits[0], limits[1] - 1)
    widest = _LARGEST_EXACT if dtype.kind == "float" else 1 << 64
    if not (max(dtype.minimum, -widest) <= low and last <= min(dtype.maximum, widest)):
        message = f"the input {variable.name!r} is {dtype.name}, which does not hold all integers {low}..{last + 1}"
        raise ExecutionError(Diagnostic(Code.VALUE_OUT_OF_RANGE, message))
    if last >= 1 << 63:
        return lambda random, shape: np.asarray(random.integers(low, last, shape, np.uint64, endpoint=True))
    return lambda random, shape: np.asarray(random.integers(low, last, shape, endpoint=True)).astype(_exact(dtype))


def _unfit(variable: BoundVar, reason: str, advice: str) -> ExecutionError:
    message = f"the input {variable.name!r} is {variable.dtype.name}, and {reason}"
    return ExecutionError(Diagnostic(Code.WRONG_DTYPE, message, None, f"for example: --input {variable.name}={advice}"))
