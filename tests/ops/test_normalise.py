"""Normalisation ops against PyTorch in f64."""

import os
from math import inf, nan, prod
from time import process_time
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import GraphError
from openinfer.ops import OPS, apply

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
import torch
from torch.nn import functional


def doubles(question: Question) -> list[Any]:
    return [None if array is None else torch.tensor(array.astype(np.float64)) for array in question.wide]


def moved(x: Any, axes: list[int]) -> Any:
    """The axes as the last ones, where PyTorch normalises."""
    return x.movedim(axes, list(range(x.ndim - len(axes), x.ndim)))


def over_axes(question: Question, normalise: Any) -> Any:
    """What PyTorch makes of the normalised axes as the last ones, moved back."""
    x, *rest = doubles(question)
    axes = sorted(axis % x.ndim for axis in question.params["axes"])
    last = list(range(x.ndim - len(axes), x.ndim))
    extents = [x.shape[axis] for axis in axes]
    if 0 in x.shape:
        return x.numpy()
    return normalise(moved(x, axes), extents, *rest, question.params["eps"]).movedim(last, axes).numpy()


def batch(question: Question) -> Any:
    x, scale, shift, mean, var = doubles(question)
    axis = question.params["axis"]
    if 0 in x.shape:
        return x.numpy()
    first = x.movedim(axis, 1) if x.ndim > 1 else x[None, :]
    found = functional.batch_norm(first, mean, var, scale, shift, eps=question.params["eps"])
    return (found.movedim(1, axis) if x.ndim > 1 else found[0]).numpy()


def group(question: Question) -> Any:
    x, scale, shift = doubles(question)
    if 0 in x.shape:
        return x.numpy()
    groups = question.params["groups"]
    if prod(x.shape) // x.shape[0] == groups:  # PyTorch has no group of one value; its variance is 0
        return (torch.zeros_like(x) + (0 if shift is None else shift.reshape(-1, *[1] * (x.ndim - 2)))).numpy()
    return functional.group_norm(x, groups, scale, shift, question.params["eps"]).numpy()


def instance(question: Question) -> Any:
    x, scale, shift = doubles(question)
    if 0 in x.shape:
        return x.numpy()
    if prod(x.shape[2:]) == 1:
        return (torch.zeros_like(x) + (0 if shift is None else shift.reshape(-1, *[1] * (x.ndim - 2)))).numpy()
    return functional.instance_norm(x, weight=scale, bias=shift, eps=question.params["eps"]).numpy()


def length(question: Question) -> Any:
    (x,) = doubles(question)
    return functional.normalize(x, dim=question.params["axis"], eps=question.params["eps"]).numpy()


JUDGES: dict[str, Judge] = {
    "layer_norm": lambda question: over_axes(question, functional.layer_norm),
    "rms_norm": lambda question: over_axes(question, functional.rms_norm),
    "batch_norm": batch,
    "group_norm": group,
    "instance_norm": instance,
    "l2_normalize": length,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_pytorch(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def floats(*values: Any) -> Any:
    return np.array(values, np.float32)


def test_a_row_by_hand() -> None:
    x = floats(1, 3)
    assert apply("layer_norm", x, eps=0).tolist() == [-1, 1]
    assert apply("layer_norm", x, floats(2, 2), floats(10, 20), eps=0).tolist() == [8, 22]
    assert apply("rms_norm", floats(1, 7), eps=0).tolist() == floats(0.2, 1.4).tolist()
    assert apply("l2_normalize", floats(3, 4)).tolist() == floats(0.6, 0.8).tolist()


def test_parameters_stand_along_the_normalised_axes() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    shift = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = apply("layer_norm", x, None, shift, axes=[0, 2])
    assert np.array_equal(found[:, 1, :], shift)


def test_groups_are_consecutive_channels() -> None:
    x = floats([1, 3, 100, 300])
    assert apply("group_norm", x, groups=2, eps=0).tolist() == [[-1, 1, -1, 1]]


def test_short_vectors_are_divided_by_eps_and_zeros_stay() -> None:
    assert apply("l2_normalize", floats(0.25, 0), eps=1).tolist() == [0.25, 0]
    assert apply("l2_normalize", floats(0, 0)).tolist() == [0, 0]


def test_layer_norm_of_an_encoder_is_quick() -> None:
    x, scale, shift = np.ones((128, 384), np.float32), np.ones(384, np.float32), np.ones(384, np.float32)
    start = process_time()
    for _ in range(20):
        apply("layer_norm", x, scale, shift)
    assert process_time() - start < 1.0, "row by row in Python it would take many seconds"


ONES = {shape: np.ones(shape, np.float32) for shape in ((2,), (3,), (2, 3), (2, 3, 4), (2, 6, 4))}
REFUSALS: list[tuple[str, tuple[Any, ...], dict[str, Any], str, str]] = [
    ("layer_norm", (ONES[2, 3], ONES[2,]), {}, "E308", "'gamma' is f32[2], but the normalised axes of f32[2, 3] have"),
    ("layer_norm", (ONES[2, 3], None, ONES[2,]), {}, "E308", "'beta' is f32[2]"),
    ("rms_norm", (ONES[2, 3, 4], ONES[3,]), {"axes": [1, 2]}, "E308", "have the shape [3, 4]"),
    ("layer_norm", (ONES[2, 3],), {"axes": [2]}, "E310", "there is no axis 2: the operand has 2 dimensions"),
    ("layer_norm", (ONES[2, 3],), {"axes": [1, -1]}, "E310", "'axes' names an axis twice"),
    ("rms_norm", (ONES[2, 3],), {"eps": -1}, "E310", "'eps' is a finite number of at least 0, not -1.0"),
    ("l2_normalize", (ONES[2, 3],), {"eps": nan}, "E310", "'eps' is a finite number of at least 0, not nan"),
    ("l2_normalize", (ONES[2, 3],), {"axis": 2}, "E310", "there is no axis 2"),
    (
        "batch_norm",
        (ONES[2, 3], *[ONES[3,]] * 3, ONES[2,]),
        {},
        "E308",
        "'var' is f32[2], but the channels of f32[2, 3]",
    ),
    ("batch_norm", (ONES[2,], *[ONES[2,]] * 4), {}, "E310", "there is no axis 1"),
    ("batch_norm", (ONES[2, 3], *[ONES[3,]] * 4), {"eps": inf}, "E310", "not inf"),
    (
        "group_norm",
        (ONES[2, 6, 4],),
        {"groups": 4},
        "E310",
        "the 6 channels of f32[2, 6, 4] do not make 4 equal groups",
    ),
    ("group_norm", (ONES[2, 6, 4],), {"groups": 0}, "E310", "do not make 0 equal groups"),
    ("group_norm", (ONES[2, 6, 4], ONES[2,]), {"groups": 2}, "E308", "'gamma' is f32[2]"),
    ("group_norm", (ONES[2,],), {"groups": 1}, "E308", "groups are of channels, axis 1, which f32[2] does not have"),
    ("group_norm", (ONES[2, 6, 4],), {}, "E306", "'group_norm' needs the parameter 'groups'"),
    ("instance_norm", (ONES[2, 3],), {}, "E308", "instances have spatial axes after batch and channels"),
    ("instance_norm", (ONES[2, 6, 4], None, ONES[2,]), {}, "E308", "'beta' is f32[2]"),
    ("layer_norm", (np.ones((2, 3), np.int32),), {}, "E307", "the input 'x' of 'layer_norm' cannot be i32[2, 3]"),
]


@pytest.mark.parametrize(("name", "arrays", "params", "code", "message"), REFUSALS)
def test_refuses(name: str, arrays: tuple[Any, ...], params: dict[str, Any], code: str, message: str) -> None:
    with pytest.raises(GraphError) as caught:
        apply(name, *arrays, **params)
    assert caught.value.code == code
    assert message in caught.value.message


def test_every_op_of_the_module_has_a_judge() -> None:
    assert {record.name for record in OPS.values() if record.family == "Normalise"} == set(JUDGES)
