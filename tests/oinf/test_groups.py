"""Group-wise quantization: what is written is read, only files that have it are version 3, bad payloads are refused."""

import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openinfer.errors import Code, OinfError
from openinfer.oinf import ModelLoader, QuantOffset, QuantParams, QuantScale, QuantZeroPoint, TensorSpec, save_file
from openinfer.oinf.diff import diff
from openinfer.oinf.quant import Scheme

HEADER = 48
"""The bytes in front of what only groups have."""


def stored(scheme: Scheme, dtype: type, shape: tuple[int, int] = (3, 70), axis: int = 1, group: int = 32) -> TensorSpec:
    """A tensor with a scale, some of them negative or zero, for each group."""
    rng = np.random.default_rng(5)
    groups = [*shape]
    groups[axis] = -(-groups[axis] // group)
    scales: Any = rng.standard_normal(groups).astype(dtype)
    scales.flat[0] = 0
    zeros = QuantZeroPoint.per_group(axis, group, rng.integers(0, 9, groups)) if scheme == "asymmetric" else None
    offsets: Any = rng.standard_normal(groups).astype(dtype)
    offset = QuantOffset.per_group(axis, group, offsets) if scheme == "affine" else None
    quant = QuantParams(scheme, QuantScale.per_group(axis, group, scales), zeros, offset)
    return TensorSpec(rng.integers(0, 8, shape), "i4" if scheme == "symmetric" else "u4", quant=quant)


def version_of(path: Path) -> int:
    """The version that a file says it has."""
    return int(struct.unpack_from("<I", path.read_bytes(), 5)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric", "affine"])
@pytest.mark.parametrize("axis", [0, 1])
def test_groups_are_read_as_they_were_written(tmp_path: Path, scheme: Scheme, dtype: type, axis: int) -> None:
    spec, path = stored(scheme, dtype, axis=axis), tmp_path / "w.oinf"
    save_file(path, {"w": spec})
    assert version_of(path) == 3
    with ModelLoader.open(path) as model:
        found = model.tensors["w"].quant
        assert found == spec.quant
        assert found is not None
        assert found.scale.values.dtype == dtype
        values = model.load("w").to_numpy()
    element = (2, 69)
    place = tuple(at // 32 if axis == own else at for own, at in enumerate(element))
    extents = tuple(-(-extent // 32) if axis == own else extent for own, extent in enumerate((3, 70)))
    flat = np.ravel_multi_index(place, extents)
    expected = np.float32(values[element])
    if found.zero_point is not None:
        expected -= np.float32(found.zero_point.values[flat])
    expected *= np.float32(found.scale.values[flat])
    if found.offset is not None:
        expected += np.float32(found.offset.values[flat])
    assert found.dequantize(values)[element] == expected


def test_files_without_groups_stay_version_2(tmp_path: Path) -> None:
    path = tmp_path / "w.oinf"
    save_file(path, {"w": TensorSpec([1, 2], "i8", quant=QuantParams("symmetric", QuantScale.per_tensor(0.5)))})
    assert version_of(path) == 2


@pytest.mark.parametrize(
    ("field", "at", "value", "words"),
    [
        ("scheme", 0, 4, "unknown scheme 4; 1 is symmetric, 2 asymmetric, 3 affine"),
        ("scale_mode", 4, 4, "unknown mode 4; 1 is per_tensor, 2 per_channel, 3 per_group"),
        ("scale_mode", 4, 2, "not 3"),
        ("zp_mode", 8, 0, "has offsets"),
        ("reserved", 12, 0, "at least 1 element"),
        ("scale_count", 12, 16, "15 groups"),
        ("scale_dtype", HEADER, 11, "not the tag of f32, f16 or bf16"),
        ("group_reserved", HEADER + 4, 1, "must be zero"),
        ("scale[0]", HEADER + 8, 0x7C00, "finite"),
        ("offset[0]", HEADER + 8 + 2 * 9, 0x7E00, "finite"),
    ],
)
def test_a_bad_payload_is_refused_where_it_is_wrong(
    tmp_path: Path, field: str, at: int, value: int, words: str
) -> None:
    path = tmp_path / "w.oinf"
    spec = stored("affine", np.float16)
    save_file(path, {"w": spec})
    data = bytearray(path.read_bytes())
    assert spec.quant is not None
    start = data.index(spec.quant.encode())
    is_word = field.startswith(("scale[", "offset["))
    struct.pack_into("<H" if is_word else "<I", data, start + at, value)
    path.write_bytes(data)
    with pytest.raises(OinfError) as caught:
        ModelLoader.open(path)
    assert caught.value.diagnostics[0].code is Code.BAD_QUANTIZATION
    assert words in str(caught.value)


def test_groups_in_a_file_of_version_2_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.oinf"
    save_file(path, {"w": stored("symmetric", np.float32)})
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 5, 2)
    path.write_bytes(data)
    with pytest.raises(OinfError, match="unknown mode 3"):
        ModelLoader.open(path)


def test_an_affine_quantization_and_an_offset_need_each_other() -> None:
    scale = QuantScale.per_group(0, 2, [1.0, 2.0])
    with pytest.raises(OinfError, match="an affine quantization has one"):
        QuantParams("affine", scale)
    with pytest.raises(OinfError, match="belongs to an affine"):
        QuantParams("symmetric", scale, None, QuantOffset.per_group(0, 2, [1.0, 2.0]))


def test_the_number_of_scales_must_be_that_of_the_groups(tmp_path: Path) -> None:
    quant = QuantParams("symmetric", QuantScale.per_group(0, 2, [1.0]))
    with pytest.raises(OinfError, match="has 2 groups along axis 0, but 1 scales"):
        save_file(tmp_path / "w.oinf", {"w": TensorSpec([1, 2, 3], "i8", quant=quant)})


def test_differences_are_in_what_values_stand_for(tmp_path: Path) -> None:
    one, other = stored("affine", np.float32), stored("affine", np.float32)
    changed = np.array(other.values)
    changed[2, 69] += 1
    save_file(tmp_path / "a.oinf", {"w": one})
    save_file(tmp_path / "b.oinf", {"w": TensorSpec(changed, "u4", quant=other.quant)})
    assert one.quant is not None
    with ModelLoader.open(tmp_path / "a.oinf") as left, ModelLoader.open(tmp_path / "b.oinf") as right:
        (found,) = diff(left, right)
    assert found.loss is not None
    assert found.loss.largest == pytest.approx(abs(float(one.quant.scale.values[8])))
