"""Choosing, renaming, casting and quantizing on the way into a model file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openinfer import Code, ModelLoader, OpenInferError
from openinfer.oinf.channels import blocks
from openinfer.oinf.options import size_options
from openinfer.oinf.pack import PackOptions, pack
from openinfer.oinf.quant_spec import QUANTIZED_DTYPES, QuantSpec


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    rng = np.random.default_rng(8)
    arrays: dict[str, Any] = {
        "enc.0.weight": rng.normal(size=(6, 10)).astype(np.float32),
        "enc.0.bias": rng.normal(size=6).astype(np.float32),
        "ids": np.arange(4),
    }
    np.savez(tmp_path / "w.npz", **arrays)
    return tmp_path / "w.npz"


def packed(weights: Path, **options: Any) -> ModelLoader:
    target = weights.parent / "out.oinf"
    pack([weights], target, PackOptions(**options))
    return ModelLoader.open(target, copy=True)


def refused(weights: Path, **options: Any) -> OpenInferError:
    with pytest.raises(OpenInferError) as caught:
        pack([weights], weights.parent / "out.oinf", PackOptions(**options))
    assert os.listdir(weights.parent) == [weights.name], "a refused packing must leave nothing behind"
    return caught.value


def test_include_and_exclude_choose_by_source_name(weights: Path) -> None:
    model = packed(weights, include=["enc.*"], exclude=["*.bias"], rename=[r"^enc\.(\d+)\.=layer\1."])
    assert list(model.tensors) == ["layer0.weight"]


def test_renames_apply_in_order(weights: Path) -> None:
    assert "b.0.bias" in packed(weights, rename=["enc=a", "^a=b"]).tensors


def test_two_tensors_with_one_name_are_refused(weights: Path) -> None:
    assert refused(weights, rename=["enc.0.*=same"]).code == Code.DUPLICATE_NAME


def test_a_rename_to_a_bad_name_is_refused(weights: Path) -> None:
    assert refused(weights, rename=["enc=a b"]).code == Code.BAD_NAME


def test_wildcard_casts_round_floats_and_leave_integers(weights: Path) -> None:
    model = packed(weights, cast=["*=f16", "*.bias=bf16"])
    types = {name: info.dtype.name for name, info in model.tensors.items()}
    assert types == {"enc.0.bias": "bf16", "enc.0.weight": "f16", "ids": "i64"}
    with np.load(weights) as source:
        np.testing.assert_array_equal(model.load("enc.0.weight").to_numpy(), source["enc.0.weight"].astype(np.float16))
        expected = source["enc.0.bias"].astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(model.load("enc.0.bias").to_numpy(), expected)


def test_a_cast_that_would_change_integers_is_refused(weights: Path) -> None:
    assert refused(weights, cast=["ids=i2"]).code == Code.VALUE_OUT_OF_RANGE


def test_an_exact_cast_of_integers_is_done(weights: Path) -> None:
    model = packed(weights, cast=["ids=u4"])
    assert model.load("ids").to_numpy().astype(int).tolist() == [0, 1, 2, 3]


def test_sizes_and_metadata_are_added(weights: Path) -> None:
    model = packed(
        weights,
        sizes={"D": 384},
        metadata=["a=3", "b=3:f64", "c=true", "d=1.5", "e=x:y", "f=7:str", "g=[1,2]:i32", "h=1e3", "i=", "j=null"],
    )
    assert model.size_of("D") == 384
    types = {name: info.type_name for name, info in model.metadata_info.items()}
    expected = "i8 f64 bool f32 str str i32[2] f32 str str"
    assert types == dict(zip("abcdefghij", expected.split(), strict=True))
    assert (model.metadata["e"], model.metadata["f"], model.metadata["i"]) == ("x:y", "7", "")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"cast": ["w"]}, Code.BAD_PACK_OPTION),
        ({"cast": ["=f32"]}, Code.BAD_PACK_OPTION),
        ({"cast": ["*=f31"]}, Code.UNKNOWN_DTYPE),
        ({"cast": ["nothing*=f16"]}, Code.PATTERN_MATCHED_NOTHING),
        ({"quantize": ["nothing*=i8"]}, Code.PATTERN_MATCHED_NOTHING),
        ({"quantize": ["*=i16"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*=i8:sideways"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*=i8:axis=0"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*=i8:per_channel:axis=5"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*=i8:per_channel:axis=-1"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["ids=i8"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*.weight=u8:symmetric"]}, Code.BAD_PACK_OPTION),
        ({"rename": ["(=x"]}, Code.BAD_PACK_OPTION),
        ({"rename": ["x"]}, Code.BAD_PACK_OPTION),
        ({"rename": [r"enc=\9"]}, Code.BAD_PACK_OPTION),
        ({"rename": ["zzz=y"]}, Code.PATTERN_MATCHED_NOTHING),
        ({"include": ["zzz"]}, Code.PATTERN_MATCHED_NOTHING),
        ({"exclude": ["zzz"]}, Code.PATTERN_MATCHED_NOTHING),
        ({"metadata": ["novalue"]}, Code.BAD_PACK_OPTION),
        ({"metadata": ["a=x:f32"]}, Code.BAD_PACK_OPTION),
        ({"metadata": ["a=300:i8"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=1e400"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=1e400:f64"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=1e39"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=1e39:f32"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=70000:f16"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=[1, 1e6]:f8e5m2"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=nan:i8"]}, Code.VALUE_OUT_OF_RANGE),
        ({"metadata": ["a=1", "a=2"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*.weight=i8:symmetric:symmetric"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*.weight=i8:symmetric:asymmetric"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*.weight=i8:per_channel:per_channel"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*.weight=i8:per_channel:axis=0:axis=1"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["*.weight=i8:per_channel:axis=\u0661"]}, Code.BAD_PACK_OPTION),
        ({"quantize": ["enc.0.bias=i8:per_channel:axis=1"]}, Code.BAD_PACK_OPTION),
        ({"metadata": ["a b=1"]}, Code.BAD_NAME),
        ({"sizes": {"D": -1}}, Code.BAD_AUTHORING_VALUE),
    ],
    ids=str,
)
def test_bad_options_are_coded_errors_that_leave_no_file(weights: Path, options: Any, code: Code) -> None:
    assert refused(weights, **options).code == code


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "Infinity", "-inf", "-Infinity"])
def test_what_is_not_finite_is_read_as_a_float_with_and_without_a_dtype(weights: Path, text: str) -> None:
    model = packed(weights, metadata=[f"a={text}", f"b={text}:f64", f"c={text}:f8e5m2", f"d={text}:str"])
    types = {name: info.type_name for name, info in model.metadata_info.items()}
    assert types == {"a": "f32", "b": "f64", "c": "f8", "d": "str"}
    for key in "abc":
        np.testing.assert_equal(float(model.metadata[key]), float(text))
    assert model.metadata["d"] == text


def test_a_wildcard_quantization_passes_over_tensors_without_its_axis(weights: Path) -> None:
    model = packed(weights, quantize=["enc*=i8:per_channel:axis=1"])
    assert {name: info.dtype.name for name, info in model.tensors.items() if info.quant} == {"enc.0.weight": "i8"}


def test_errors_name_the_tensor_or_the_metadata_key(weights: Path) -> None:
    assert refused(weights, rename=["ids=n"], cast=["n=i2"]).message == "'n': the value 3 is not an i2"
    assert refused(weights, metadata=["rate=300:i8"]).message == "'rate': the value 300 is not an i8"
    assert refused(weights, metadata=["rate=[300]:u8"]).message == "'rate': the value 300 is not a u8"
    assert refused(weights, metadata=["rate=1e39:f32"]).message == "'rate': the value 1e+39 is too large for an f32"


@pytest.mark.parametrize("texts", [["D=1", "D=1"], ["D=\u0661"], ["D="], ["D"], ["D=-1"]])
def test_sizes_are_given_once_in_plain_digits(texts: list[str]) -> None:
    with pytest.raises(OpenInferError) as caught:
        size_options(texts)
    assert caught.value.code == Code.BAD_PACK_OPTION


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_cannot_be_quantized_and_leaves_no_file(tmp_path: Path, value: float) -> None:
    np.savez(tmp_path / "w.npz", w=np.array([1, value], np.float32))
    assert refused(tmp_path / "w.npz", quantize=["w=i8"]).code == Code.BAD_PACK_OPTION


def reference(values: npt.NDArray[Any], spec: QuantSpec) -> Any:
    """Quantize and dequantize a whole array at once, straight from the definition."""
    axis = spec.axis
    over = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
    low = np.minimum(values.min(axis=over, keepdims=True, initial=0), 0).astype(np.float64)
    high = np.maximum(values.max(axis=over, keepdims=True, initial=0), 0).astype(np.float64)
    least, most = spec.dtype.minimum, spec.dtype.maximum
    if spec.scheme == "symmetric":
        scale = (np.maximum(-low, high) / most).astype(np.float32)
        scale[scale == 0] = 1
        return np.clip(np.rint(values / scale), -most, most) * scale.astype(np.float64)
    scale = ((high - low) / (most - least)).astype(np.float32)
    scale[scale == 0] = 1
    point = np.clip(np.rint(least - low / scale), least, most)
    stored = np.clip(np.rint(values / scale) + point, least, most)
    return (stored - point) * scale.astype(np.float64)


@pytest.mark.parametrize("dtype", QUANTIZED_DTYPES)
@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("mode", ["per_tensor", "per_channel:axis=0", "per_channel:axis=1", "per_channel:axis=2"])
def test_quantization_matches_its_definition_and_reports_its_error(
    tmp_path: Path, dtype: str, scheme: str, mode: str
) -> None:
    values = np.random.default_rng(6).normal(size=(3, 5, 7)).astype(np.float32)
    values[1] = 0
    if dtype.startswith("u") and scheme == "symmetric":
        values = np.abs(values)
    np.savez(tmp_path / "w.npz", w=values)
    text = f"{dtype}:{scheme}:{mode}"
    report = pack([tmp_path / "w.npz"], tmp_path / "out.oinf", PackOptions(quantize=[f"w={text}"]))
    expected = reference(values, QuantSpec.parse(text))
    with ModelLoader.open(tmp_path / "out.oinf") as model:
        quant = model.tensors["w"].quant
        assert quant is not None
        assert quant.scheme == scheme
        found = quant.dequantize(model.load("w").to_numpy())
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    loss = report.tensors[0].loss
    assert loss is not None
    assert loss.largest == pytest.approx(np.abs(values - expected).max(), rel=1e-4)
    assert loss.rms == pytest.approx(np.sqrt(np.mean((values - expected) ** 2)), rel=1e-4)


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    limit=st.integers(1, 40),
    data=st.data(),
)
def test_blocks_cover_every_element_once_with_its_channel(
    shape: tuple[int, ...], limit: int, data: st.DataObject
) -> None:
    axis = data.draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
    channel = np.zeros(shape, int) if axis is None else np.indices(shape)[axis]
    found: list[int] = []
    for block in blocks(shape, axis, limit):
        assert block.start == len(found)
        assert 0 < block.size <= limit
        run = np.arange(block.first_channel, block.first_channel + block.channels)
        found += np.broadcast_to(run[:, None], (block.outer, block.channels, block.inner)).reshape(-1).tolist()
    assert found == channel.reshape(-1).tolist()


def test_the_command_line_packs_reports_and_prints_json(weights: Path) -> None:
    command = [sys.executable, "-m", "openinfer", "pack", str(weights), "-o", str(weights.parent / "o.oinf")]
    rules = ["--quantize", "*.weight=i8:symmetric:per_channel:axis=0", "--size", "D=6", "--meta", "mode=fast"]
    done = subprocess.run([*command, *rules], capture_output=True, text=True, check=True)
    assert "i8:symmetric:per_channel:axis=0" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{weights.parent / 'o.oinf'}: 3 tensors, ")
    facts = json.loads(subprocess.run([*command, *rules, "--json"], capture_output=True, check=True).stdout)
    assert facts["tensors"][1]["snr_db"] > 35
    bad = subprocess.run([*command, "--size", "D=x"], capture_output=True, text=True, check=False)
    assert (bad.returncode, "error[E743]" in bad.stderr) == (1, True)
