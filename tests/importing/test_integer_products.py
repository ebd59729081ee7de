"""Products between DequantizeLinear nodes become products of codes in i32, and compute the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.importing.models import model, node, require_agreement

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def near_codes(*shape: int) -> Any:
    """Values that round to the same codes whichever way they are divided by the scale."""
    return ((RNG.integers(-45, 45, shape) + RNG.uniform(-0.3, 0.3, shape)) * 0.02).astype(np.float32)


def rounded(name: str, kind: str, point: int) -> tuple[list[Any], dict[str, Any]]:
    """An input as its codes and back: nodes that give ``name_real``, and their constants."""
    names = [f"{name}_scale", f"{name}_point"]
    nodes = [
        node("QuantizeLinear", [name, *names], [f"{name}_codes"]),
        node("DequantizeLinear", [f"{name}_codes", *names], [f"{name}_real"]),
    ]
    return nodes, {names[0]: np.float32(0.02), names[1]: np.array(point, kind)}


def stored(shape: tuple[int, ...], scales: int, axis: int, bias: int) -> tuple[list[Any], dict[str, Any]]:
    """Weights of i8 and a bias of i32 in steps of the product: nodes that give ``w`` and ``b``."""
    scale = (np.abs(normal(scales)) / 50 + 0.001) if scales > 1 else np.float32(0.01)
    nodes = [node("DequantizeLinear", ["w_codes", "w_scale"], ["w"], axis=axis)]
    weights = {"w_codes": RNG.integers(-127, 128, shape).astype(np.int8), "w_scale": scale}
    if bias:
        nodes.append(node("DequantizeLinear", ["b_codes", "b_scale"], ["b"], axis=0))
        weights |= {
            "b_codes": RNG.integers(-900, 900, bias).astype(np.int32),
            "b_scale": np.broadcast_to(np.float32(0.02) * scale, (bias,)).copy(),
        }
    return nodes, weights


@pytest.mark.parametrize(("kind", "point"), [("i1", 0), ("i1", 5), ("u1", 128), ("u1", 77)])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_of_codes_sees_zero_points_outside(tmp_path: Path, kind: str, point: int, groups: int) -> None:
    first, constants = rounded("x", kind, point)
    second, weights = stored((6, 4 // groups, 3, 3), 6, 0, 6)
    conv = node("Conv", ["x_real", "w", "b"], ["y"], pads=[1, 0, 1, 2], strides=[2, 1], group=groups)
    made = model([*first, *second, conv], {"x": ("f32", [2, 4, 5, 6])}, {"y": ("f32", None)}, {**constants, **weights})
    found = require_agreement(made, tmp_path, {"x": near_codes(2, 4, 5, 6)}, 1e-4)
    assert "acc=[i32]" in found
    assert ": i8[6," in found


@pytest.mark.parametrize(("kind", "point"), [("i1", 0), ("u1", 120)])
@pytest.mark.parametrize("scales", [1, 5])
def test_a_product_of_codes_with_a_stored_matrix(tmp_path: Path, kind: str, point: int, scales: int) -> None:
    first, constants = rounded("x", kind, point)
    second, weights = stored((8, 5), scales, 1, 5)
    inputs: Any = {"x": ("f32", [3, 8])}
    for last in (
        [node("MatMul", ["x_real", "w"], ["p"]), node("Add", ["p", "b"], ["y"])],
        [node("Gemm", ["x_real", "w", "b"], ["y"])],
    ):
        made = model([*first, *second, *last], inputs, {"y": ("f32", None)}, {**constants, **weights})
        found = require_agreement(made, tmp_path, {"x": near_codes(3, 8)}, 1e-4)
        assert "acc=[i32]" in found
        assert "acc" not in require_agreement(made, tmp_path, {"x": near_codes(3, 8)}, 1e-4, idioms=False)


def test_a_product_of_two_computed_matrices_of_codes(tmp_path: Path) -> None:
    first, constants = rounded("x", "i1", 0)
    second, more = rounded("v", "i1", 0)
    made = model(
        [*first, *second, node("MatMul", ["x_real", "v_real"], ["y"])],
        {"x": ("f32", [2, 3, 8]), "v": ("f32", [2, 8, 4])},
        {"y": ("f32", None)},
        {**constants, **more},
    )
    assert "acc=[i32]" in require_agreement(made, tmp_path, {"x": near_codes(2, 3, 8), "v": near_codes(2, 8, 4)}, 1e-4)


def test_a_bias_that_is_no_whole_number_of_steps_is_added_to_the_result(tmp_path: Path) -> None:
    first, constants = rounded("x", "u1", 100)
    second, weights = stored((5, 4, 3), 5, 0, 0)
    conv = node("Conv", ["x_real", "w", "b"], ["y"])
    made = model(
        [*first, *second, conv],
        {"x": ("f32", [1, 4, 9])},
        {"y": ("f32", None)},
        {**constants, **weights, "b": normal(5) * 100},
    )
    found = require_agreement(made, tmp_path, {"x": near_codes(1, 4, 9)}, 1e-4)
    assert "acc=[i32]" in found
    assert "op add(" in found


@pytest.mark.parametrize("weights", ["u1", "i1"])
@pytest.mark.parametrize("point", [0, 100, (0, 128, 255, 3, 90)])
def test_codes_less_a_zero_point_that_need_nine_bits_are_still_products_of_eight(
    tmp_path: Path, weights: str, point: Any
) -> None:
    """A constant is taken out of the weights, and what it would have added comes from the sums of rows."""
    low = 0 if weights == "u1" else -128
    codes = (RNG.integers(0, 256, (12, 5)) + low).astype(weights)
    made = model(
        [
            node("DynamicQuantizeLinear", ["x"], ["codes", "scale", "x_point"]),
            node("MatMulInteger", ["codes", "w", "x_point", "w_point"], ["y"]),
        ],
        {"x": ("f32", [2, 3, 12])},
        {"y": ("i32", None)},
        {"w": codes, "w_point": (np.array(point) + low).astype(weights)},
    )
    found = require_agreement(made, tmp_path, {"x": normal(2, 3, 12)}, 0, is_precise=True)
    assert "acc=[i32]" in found
    assert ": i8[12, 5]" in found


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(("group", "point"), [(1, 100), (2, 0)])
def test_a_convolution_whose_zero_point_data_gives_multiplies_8_bits(
    tmp_path: Path, kind: Any, group: int, point: int
) -> None:
    """What lies outside of the image is the zero point; weights that need nine bits less their own are narrowed."""
    codes = RNG.integers(0, 256, (6, 4 // group, 3, 2)).astype(np.uint8).view(kind)
    if group > 1:
        codes = (codes.astype(np.int32) // 2).astype(kind)  # what is added to each output needs groups of one
    made = model(
        [node("ConvInteger", ["x", "w", "xp", "wp"], ["y"], pads=[1, 0, 1, 2], strides=[2, 1], group=group)],
        {"x": ("u8", [2, 4, 6, 5]), "xp": ("u8", [])},
        {"y": ("i32", None)},
        {"w": codes, "wp": np.array(point, kind)},
    )
    x = RNG.integers(0, 256, (2, 4, 6, 5)).astype(np.uint8)
    found = require_agreement(made, tmp_path, {"x": x, "xp": np.array(77, np.uint8)}, 0)
    assert "acc=[i32]" in found
    assert ": i8[6," in found
