"""Nodes that sample, pool with positions and put windows back: composed of ops here, equal to ONNX Runtime."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.importing.models import model, node, require_agreement

from openinfer import ImportingError

RNG = np.random.default_rng(11)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("mode", "outside", "align"),
    list(product(["linear", "nearest", "cubic"], ["zeros", "border", "reflection"], [0, 1])),
)
def test_a_grid_samples_in_every_mode_inside_and_far_outside(
    tmp_path: Path, mode: str, outside: str, align: int
) -> None:
    made = model(
        [node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=outside, align_corners=align)],
        {"x": ("f32", [2, 3, 4, 5]), "g": ("f32", [2, 3, 4, 2])},
        {"y": ("f32", None)},
        opset=20,
    )
    require_agreement(made, tmp_path, {"x": normal(2, 3, 4, 5), "g": normal(2, 3, 4, 2) * 2}, 1e-4)


def test_a_grid_samples_volumes(tmp_path: Path) -> None:
    made = model(
        [node("GridSample", ["x", "g"], ["y"], padding_mode="border")],
        {"x": ("f32", [1, 2, 3, 4, 5]), "g": ("f32", [1, 2, 2, 3, 3])},
        {"y": ("f32", None)},
        opset=20,
    )
    require_agreement(made, tmp_path, {"x": normal(1, 2, 3, 4, 5), "g": normal(1, 2, 2, 3, 3)}, 1e-4)


@pytest.mark.parametrize(("mode", "how"), [("avg", "half_pixel"), ("avg", "output_half_pixel"), ("max", "half_pixel")])
def test_regions_are_aligned_one_by_one_also_beyond_the_edges(tmp_path: Path, mode: str, how: str) -> None:
    attributes: dict[str, Any] = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5}
    made = model(
        [node("RoiAlign", ["x", "r", "b"], ["y"], mode=mode, coordinate_transformation_mode=how, **attributes)],
        {"x": ("f32", [2, 3, 6, 7]), "r": ("f32", ["regions", 4]), "b": ("i64", ["regions"])},
        {"y": ("f32", None)},
    )
    rois = np.array([[1, 1, 9, 8], [-5, -4, 4, 30], [3, 3, 3, 3], [0, 0, 13, 11]], np.float32)
    feeds = {"x": normal(2, 3, 6, 7), "r": rois, "b": np.array([0, 1, 1, 0])}
    found = require_agreement(made, tmp_path, feeds, 1e-4, sizes={"regions": "<=8"})
    assert "in 0..regions)" in found


def test_regions_whose_number_of_samples_depends_on_data_are_refused(tmp_path: Path) -> None:
    made = model(
        [node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2)],
        {"x": ("f32", [1, 1, 4, 4]), "r": ("f32", [1, 4]), "b": ("i64", [1])},
        {"y": ("f32", None)},
    )
    with pytest.raises(ImportingError, match="depends on data"):
        require_agreement(made, tmp_path, {})


def test_a_deformable_convolution_with_groups_strides_and_a_mask(tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    made = model(
        [node("DeformConv", ["x", "w", "o", "b", "m"], ["y"], kernel_shape=[3, 2], dilations=[1, 2], **attributes)],
        {"x": ("f32", [2, 4, 6, 5]), "o": ("f32", [2, 24, 3, 4]), "m": ("f32", [2, 12, 3, 4])},
        {"y": ("f32", None)},
        {"w": normal(6, 2, 3, 2), "b": normal(6)},
        opset=19,
    )
    require_agreement(
        made, tmp_path, {"x": normal(2, 4, 6, 5), "o": normal(2, 24, 3, 4), "m": normal(2, 12, 3, 4)}, 1e-4
    )


@pytest.mark.parametrize("order", [0, 1])
def test_a_pool_gives_the_positions_of_the_largest_elements(tmp_path: Path, order: int) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    made = model(
        [node("MaxPool", ["x"], ["y", "i"], storage_order=order, **attributes)],
        {"x": ("f32", [2, 3, 6, 5])},
        {"y": ("f32", None), "i": ("i64", None)},
    )
    require_agreement(made, tmp_path, {"x": -np.abs(normal(2, 3, 6, 5)) - 1})


def test_what_a_pool_took_away_is_put_back_in_its_places(tmp_path: Path) -> None:
    made = model(
        [
            node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2]),
            node("MaxUnpool", ["y", "i"], ["z"], kernel_shape=[2, 2], strides=[2, 2]),
        ],
        {"x": ("f32", [1, 2, 4, 6])},
        {"z": ("f32", None)},
    )
    require_agreement(made, tmp_path, {"x": normal(1, 2, 4, 6)})


def test_columns_are_added_up_where_their_windows_overlap(tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]}
    made = model(
        [node("Col2Im", ["x", "image", "block"], ["y"], **attributes)],
        {"x": ("f32", [2, 18, 12])},
        {"y": ("f32", None)},
        {"image": np.array([6, 8]), "block": np.array([3, 3])},
        opset=18,
    )
    require_agreement(made, tmp_path, {"x": normal(2, 18, 12)})


def test_sizes_with_equal_bounds_are_not_the_same_size(tmp_path: Path) -> None:
    """An image is resized to the height and width of another; both sizes are at most 9."""
    made = model(
        [
            node("Shape", ["x"], ["s"], start=2),
            node("Concat", ["front", "s"], ["sizes"], axis=0),
            node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", ["p", "", "", "sizes"], ["r"], mode="linear"),
            node("Add", ["x", "r"], ["y"]),
        ],
        {"x": ("f32", [1, 2, "h", "w"])},
        {"y": ("f32", None)},
        {"front": np.array([1, 2])},
    )
    require_agreement(made, tmp_path, {"x": normal(1, 2, 6, 8)}, sizes={"h": "<=9", "w": "<=9"})


def test_a_whole_spectrum_is_half_of_one_and_its_mirror_image(tmp_path: Path) -> None:
    for frame in (8, 7):
        made = model(
            [node("STFT", ["x", "hop", "", "frame"], ["y"], onesided=0)],
            {"x": ("f32", [2, 30, 1])},
            {"y": ("f32", None)},
            {"hop": np.int64(3), "frame": np.int64(frame)},
        )
        require_agreement(made, tmp_path, {"x": normal(2, 30, 1)}, tolerance=1e-4)


def test_a_batch_norm_can_use_the_statistics_of_its_input(tmp_path: Path) -> None:
    made = model(
        [node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y", "mean", "var"], training_mode=1)],
        {"x": ("f32", [3, 4, 5])},
        {"y": ("f32", None)},
        {name: normal(4) for name in "gbm"} | {"v": np.ones(4, np.float32)},
    )
    require_agreement(made, tmp_path, {"x": normal(3, 4, 5)})
