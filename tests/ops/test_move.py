"""Ops that move, join, cut and pad: judged on the positions of elements by PyTorch, and on values by NumPy."""

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, OpenInferError
from openinfer.ops import OPS, Array, Call, TensorType, apply, infer

Params = Mapping[str, Any]


def positions(shape: tuple[int, ...], start: int = 0) -> torch.Tensor:
    return torch.arange(start, start + prod(shape)).reshape(shape)


def moved(function: Callable[[torch.Tensor, Params], torch.Tensor]) -> Judge:
    """The function moves the positions; the values follow."""

    def judge(question: Question) -> Any:
        x = question.wide[0]
        return x.reshape(-1)[np.asarray(function(positions(x.shape), question.params))]

    return judge


def joined(function: Callable[..., torch.Tensor]) -> Judge:
    def judge(question: Question) -> Any:
        sizes = [array.size for array in question.wide]
        parts = [positions(x.shape, sum(sizes[:at])) for at, x in enumerate(question.wide)]
        values = np.concatenate([array.reshape(-1) for array in question.wide])
        return values[np.asarray(function(parts, dim=question.params["axis"]))]

    return judge


def split_judge(question: Question) -> tuple[Any, ...]:
    x = question.wide[0]
    parts = torch.split(positions(x.shape), list(question.params["sizes"]), question.params["axis"])
    return tuple(x.reshape(-1)[np.asarray(part)] for part in parts)


def sliced(x: torch.Tensor, params: Params) -> torch.Tensor:
    axes = params["axes"] or range(len(params["starts"]))
    steps = params["steps"] or [1] * len(params["starts"])
    for axis, start, end, step in zip(axes, params["starts"], params["ends"], steps, strict=True):
        chosen = list(range(x.shape[axis]))[start:end:step]
        x = torch.index_select(x, axis, torch.tensor(chosen, dtype=torch.int64))
    return x


def flattened(x: torch.Tensor, params: Params) -> torch.Tensor:
    axis = params["axis"] % (x.ndim + 1) if params["axis"] >= 0 else x.ndim + params["axis"]
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def unsqueezed(x: torch.Tensor, params: Params) -> torch.Tensor:
    rank = x.ndim + len(params["axes"])
    for axis in sorted(axis % rank for axis in params["axes"]):
        x = x.unsqueeze(axis)
    return x


def rolled(x: torch.Tensor, params: Params) -> torch.Tensor:
    shifts = params["shifts"] * len(params["axes"]) if len(params["shifts"]) == 1 else params["shifts"]
    return torch.roll(x, shifts, params["axes"])


def deepened(x: torch.Tensor, params: Params) -> torch.Tensor:
    """The formula of the documentation, element by element."""
    block, (count, channels, height, width) = params["block"], x.shape
    y = torch.zeros((count, channels * block**2, height // block, width // block), dtype=torch.int64)
    for n, c, h, w in product(*map(range, x.shape)):
        depth = (h % block * block + w % block) * channels + c
        y[n, depth, h // block, w // block] = x[n, c, h, w]
    return y


def widened(x: torch.Tensor, params: Params) -> torch.Tensor:
    block = params["block"]
    if params["order"] == "CRD":
        return torch.pixel_shuffle(x, block)
    count, depth, height, width = x.shape
    channels = depth // block**2
    y = torch.zeros((count, channels, height * block, width * block), dtype=torch.int64)
    for n, c, h, w in product(*map(range, y.shape)):
        y[n, c, h, w] = x[n, (h % block * block + w % block) * channels + c, h // block, w // block]
    return y


def pad_judge(question: Question) -> Any:
    x, params = question.wide[0], question.params
    pads = params["pads"] * 2 * x.ndim if len(params["pads"]) == 1 else params["pads"]
    borders = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    if x.ndim == 0:
        return x
    if params["mode"] != "constant":
        return np.pad(x, borders, mode=params["mode"])
    return np.pad(x, borders, constant_values=0 if params["value"] is None else params["value"])


JUDGES: dict[str, Judge] = {
    "reshape": moved(lambda x, params: x.reshape(params["shape"])),
    "flatten": moved(flattened),
    "transpose": moved(lambda x, params: x.permute(params["perm"] or tuple(range(x.ndim))[::-1])),
    "squeeze": moved(lambda x, params: x.squeeze() if params["axes"] is None else x.squeeze(params["axes"])),
    "unsqueeze": moved(unsqueezed),
    "expand": moved(lambda x, params: x.expand(params["shape"])),
    "concat": joined(torch.cat),
    "stack": joined(torch.stack),
    "split": split_judge,
    "slice": moved(sliced),
    "pad": pad_judge,
    "tile": moved(lambda x, params: torch.tile(x, params["repeats"])),
    "flip": moved(lambda x, params: x.flip(tuple(range(x.ndim)) if params["axes"] is None else params["axes"])),
    "roll": moved(rolled),
    "space_to_depth": moved(deepened),
    "depth_to_space": moved(widened),
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def test_moves_exist_for_every_dtype() -> None:
    assert all(set(OPS[name].dtypes) == set(DTYPES.values()) for name in JUDGES)


# --- definitions ------------------------------------------------------------------------------------------------------


def onnx_answer(kind: str, x: Array, **attributes: Any) -> Any:
    node = onnx.helper.make_node(kind, ["x"], ["y"], **attributes)
    value = onnx.helper.make_tensor_value_info
    float_type = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([node], "g", [value("x", float_type, x.shape)], [value("y", float_type, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def test_blocks_and_flatten_are_those_of_onnx() -> None:
    x = np.arange(2 * 12 * 4 * 6, dtype=np.float32).reshape(2, 12, 4, 6)
    np.testing.assert_array_equal(apply("space_to_depth", x, block=2), onnx_answer("SpaceToDepth", x, blocksize=2))
    for order in ("DCR", "CRD"):
        want = onnx_answer("DepthToSpace", x, blocksize=2, mode=order)
        np.testing.assert_array_equal(apply("depth_to_space", x, block=2, order=order), want)
    for axis in (0, 2, 4, -1):
        np.testing.assert_array_equal(apply("flatten", x, axis=axis), onnx_answer("Flatten", x, axis=axis))


def test_depth_to_space_undoes_space_to_depth() -> None:
    x = np.arange(96).reshape(2, 3, 4, 4)
    np.testing.assert_array_equal(apply("depth_to_space", apply("space_to_depth", x, block=2), block=2), x)


def test_slice_bounds_are_those_of_numpy() -> None:
    x = np.arange(5)
    bounds = (-9, -6, -5, -1, 0, 1, 4, 5, 9)
    for start, end, step in product(bounds, bounds, (-3, -1, 1, 2)):
        got = apply("slice", x, starts=start, ends=end, steps=step)
        np.testing.assert_array_equal(got, x[start:end:step])
    assert apply("slice", x, starts=-(2**62), ends=2**62).tolist() == x.tolist()


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_borders_longer_than_the_operand_are_those_of_numpy(mode: Any) -> None:
    for extent, before, after in product((1, 2, 3, 4), range(9), range(9)):
        x = np.arange(extent)
        want = np.pad(x, (before, after), mode=mode)
        np.testing.assert_array_equal(apply("pad", x, pads=(before, after), mode=mode), want)


def test_a_constant_border_keeps_the_sign_of_zero() -> None:
    assert np.signbit(apply("pad", np.ones(1, np.float32), pads=(1, 0), value=-0.0)).tolist() == [True, False]


def test_a_border_of_the_largest_u64_is_exact() -> None:
    assert apply("pad", np.array([1], np.uint64), pads=(0, 1), value=2**64 - 1).tolist() == [1, 2**64 - 1]


def test_roll_takes_shifts_of_any_size() -> None:
    assert apply("roll", np.arange(5), shifts=10**18 + 1, axes=0).tolist() == [4, 0, 1, 2, 3]


def split_call(shape: tuple[int, ...], outputs: int) -> Call:
    wanted = (None,) * outputs
    return Call((TensorType(DTYPES["i8"], shape),), {"axis": 1, "sizes": None}, wanted)


def test_split_without_sizes_gives_as_many_equal_parts_as_outputs() -> None:
    outputs = infer(OPS["split"], split_call((2, 6), 3)).outputs
    assert [str(kind) for kind in outputs] == ["i8[2, 2]"] * 3


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(name: str, *shapes: tuple[int, ...], dtype: str = "f32", **params: Any) -> OpenInferError:
    arrays = [np.ones(shape, DTYPES[dtype].array) for shape in shapes]
    with pytest.raises(OpenInferError) as raised:
        apply(name, *arrays, dtypes=[dtype] * len(arrays), **params)
    return raised.value


def refusals() -> Iterator[tuple[str, tuple[tuple[int, ...], ...], Params, Code, str]]:
    shape, parameter = Code.SHAPE_MISMATCH, Code.BAD_PARAMETER
    yield "reshape", ((2, 3),), {"shape": (4,)}, shape, "f32[2, 3] has 6 elements and cannot have the shape [4]"
    yield "reshape", ((2, 3),), {"shape": (-1, 4)}, shape, "cannot have the shape [-1, 4]"
    yield "reshape", ((0,),), {"shape": (0, -1)}, shape, "cannot have the shape [0, -1]"
    yield "reshape", ((2, 3),), {"shape": (-1, -1)}, parameter, "[-1, -1] is not a shape"
    yield "reshape", ((2, 3),), {"shape": (-2, -3)}, parameter, "[-2, -3] is not a shape"
    yield "flatten", ((2, 3),), {"axis": 3}, parameter, "f32[2, 3] cannot be divided at axis 3"
    yield "squeeze", ((2, 1),), {"axes": 0}, shape, "axis 0 of f32[2, 1] has the extent 2, not 1"
    yield "squeeze", ((1, 1),), {"axes": (0, -2)}, parameter, "names an axis twice"
    yield "unsqueeze", ((2,),), {"axes": (3,)}, parameter, "there is no axis 3"
    yield "transpose", ((2, 3),), {"perm": (0, 0)}, parameter, "[0, 0] does not name every axis of f32[2, 3] once"
    yield "transpose", ((2, 3),), {"perm": (0,)}, parameter, "[0] does not name every axis"
    yield "flip", ((2, 3),), {"axes": 2}, parameter, "there is no axis 2"
    yield "roll", ((2, 3),), {"shifts": (1, 2, 3), "axes": (0, 1)}, parameter, "there are 3 shifts for 2 axes"
    yield "roll", ((2, 3),), {"shifts": 1, "axes": (0, -2)}, parameter, "'axes' names an axis twice"
    yield "space_to_depth", ((2, 3),), {"block": 2}, shape, "[batch, channels, height, width], not f32[2, 3]"
    yield "space_to_depth", ((1, 1, 3, 4),), {"block": 2}, shape, "f32[1, 1, 3, 4] does not divide into blocks"
    yield "space_to_depth", ((1, 1, 2, 2),), {"block": 0}, parameter, "not 0 by 0"
    yield "depth_to_space", ((1, 6, 2, 2),), {"block": 2}, shape, "the channels of f32[1, 6, 2, 2] do not divide"
    yield "depth_to_space", ((1, 4, 2, 2),), {"block": 2, "order": "RCD"}, parameter, '"DCR" or "CRD", not "RCD"'
    yield "concat", ((2, 3), (2, 4)), {"axis": 0}, shape, "f32[2, 4] does not fit f32[2, 3]"
    yield "concat", ((2, 3), (2,)), {"axis": 0}, shape, "f32[2] does not fit f32[2, 3]"
    yield "concat", ((),), {"axis": 0}, parameter, "there is no axis 0"
    yield "concat", ((2,), (2,)), {}, Code.WRONG_OPERANDS, "'concat' needs the parameter 'axis'"
    yield "stack", ((2,), (3,)), {"axis": 0}, shape, "f32[3] cannot be stacked on f32[2]"
    yield "stack", ((2,), (2,)), {"axis": 2}, parameter, "there is no axis 2"
    yield "split", ((2, 6),), {"axis": 1, "sizes": (2, 3)}, parameter, "[2, 3] are not the sizes of parts of f32[2, 6]"
    yield "split", ((2, 6),), {"axis": 1, "sizes": (7, -1)}, parameter, "[7, -1] are not the sizes"
    yield "split", ((0,),), {"axis": 0, "sizes": ()}, parameter, "[] are not the sizes"
    yield "split", ((2, 6),), {"axis": 1}, parameter, "the number of outputs must be known"
    yield "slice", ((5,),), {"starts": 0, "ends": (1, 2)}, parameter, "'ends' has 2 elements, but 'starts' has 1"
    yield "slice", ((5,),), {"starts": 0, "ends": 1, "axes": (0, 0)}, parameter, "'axes' has 2 elements"
    yield "slice", ((5,),), {"starts": 0, "ends": 1, "steps": ()}, parameter, "'steps' has 0 elements"
    yield "slice", ((5,),), {"starts": 0, "ends": 1, "steps": 0}, parameter, "a step is not 0"
    yield "slice", ((5,),), {"starts": (0, 0), "ends": (1, 1)}, parameter, "there is no axis 1"
    yield "slice", ((5, 5),), {"starts": (0, 0), "ends": (1, 1), "axes": (1, -1)}, parameter, "names an axis twice"
    yield "expand", ((2, 3),), {"shape": (2, 4)}, shape, "f32[2, 3] does not broadcast to [2, 4]"
    yield "expand", ((2, 3),), {"shape": (3,)}, shape, "f32[2, 3] does not broadcast to [3]"
    yield "expand", ((3,),), {"shape": (-1, 3)}, shape, "f32[3] does not broadcast to [-1, 3]"
    yield "expand", ((1,),), {"shape": (-2,)}, shape, "f32[1] does not broadcast to [-2]"
    yield "tile", ((3,),), {"repeats": (2, -1)}, parameter, "cannot be repeated -1 times"
    yield "pad", ((2, 3),), {"pads": (1, 1)}, parameter, "'pads' has 2 elements, but f32[2, 3] needs 4"
    yield "pad", ((3,),), {"pads": (-1, 1)}, parameter, "'pads' are not negative"
    yield "pad", ((2, 0),), {"pads": (0, 1, 0, 0), "mode": "edge"}, shape, "axis 1 of f32[2, 0] is empty"
    yield "pad", ((3,),), {"pads": 1, "mode": "symmetric"}, parameter, "'mode' of 'pad' is"
    yield "tile", ((3,),), {"repeats": 2**60}, shape, "no machine holds it"


@pytest.mark.parametrize(("name", "shapes", "params", "code", "message"), list(refusals()))
def test_refuses(name: str, shapes: tuple[tuple[int, ...], ...], params: Params, code: Code, message: str) -> None:
    error = refused(name, *shapes, **params)
    assert error.code is code
    assert message in error.message


def test_a_border_of_a_value_that_the_dtype_lacks_is_refused() -> None:
    for dtype, value, message in (
        ("t1", None, "t1 has no 0 to pad with"),
        ("t1", 0, "'value' of 'pad' is 0, which is not t1"),
        ("u4", 16, "'value' of 'pad' is 16, which is not u4"),
        ("i8", 0.5, "'value' of 'pad' is 0.5, which is not i8"),
    ):
        params = {} if value is None else {"value": value}
        error = refused("pad", (3,), dtype=dtype, pads=1, **params)
        assert (error.code, error.message) == (Code.BAD_PARAMETER, message)
    assert apply("pad", np.ones(1, np.int8), dtypes=["t1"], pads=1, mode="edge").tolist() == [1, 1, 1]


def test_split_refuses_parts_that_are_not_equal() -> None:
    with pytest.raises(Exception, match=r"axis 1 of i8\[2, 6\] does not divide into 4 equal parts"):
        infer(OPS["split"], split_call((2, 6), 4))


def test_operands_of_different_dtypes_do_not_join() -> None:
    with pytest.raises(OpenInferError) as raised:
        apply("concat", np.ones(2, np.float32), np.ones(2, np.int8), axis=0)
    assert raised.value.code is Code.WRONG_DTYPE
