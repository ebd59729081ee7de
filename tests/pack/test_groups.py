"""``pack --quantize …:per_group``: weights in groups, each with a scale, and with an offset where not symmetric."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from openinfer import ModelLoader, OinfError, Simulator, Synthesizer, graph
from openinfer.oinf import quantize_groups
from openinfer.oinf.pack import PackOptions, PackReport, pack
from openinfer.oinf.quant_spec import QUANTIZED_DTYPES, QuantSpec


def weights(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def packed(folder: Path, values: NDArray[Any], spec: str) -> PackReport:
    np.savez(folder / "w.npz", w=values)
    return pack([folder / "w.npz"], folder / "out.oinf", PackOptions(quantize=[f"w={spec}"]))


def loaded(folder: Path) -> Any:
    with ModelLoader.open(folder / "out.oinf") as model:
        quant = model.tensors["w"].quant
        assert quant is not None
        return quant.dequantize(model.load("w").to_numpy()), quant


def reference(values: NDArray[np.float32], spec: QuantSpec, axis: int) -> Any:
    """Straight from the definition, group by group."""
    assert spec.groups is not None
    least, most, real = spec.dtype.minimum, spec.dtype.maximum, spec.groups.scales.array
    found = np.empty(values.shape, np.float64)
    moved, result = np.moveaxis(values.astype(np.float64), axis, -1), np.moveaxis(found, axis, -1)
    for first in range(0, moved.shape[-1], spec.groups.size):
        part = moved[..., first : first + spec.groups.size]
        low, high = part.min(-1, keepdims=True), part.max(-1, keepdims=True)
        offset = np.zeros_like(low)
        if spec.scheme == "symmetric":
            scale = np.asarray(np.maximum(-low, high) / most, np.float32).astype(real).astype(np.float64)
            least = -most if spec.dtype.kind == "int" else 0
        else:
            scale = np.asarray((high - low) / (most - least), np.float32).astype(real).astype(np.float64)
            offset = (low - least * scale).astype(real).astype(np.float64)
        codes = np.clip(np.rint((part - offset) / np.where(scale == 0, 1, scale)), least, most)
        result[..., first : first + spec.groups.size] = np.where(scale == 0, 0, codes) * scale + offset
    return found


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("dtype", QUANTIZED_DTYPES)
@pytest.mark.parametrize(("axis", "scales"), [(None, "f16"), (1, "f32"), (0, "bf16")])
def test_groups_match_their_definition_and_report_their_error(
    axis: int | None, scales: str, dtype: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize_groups, "CHUNK", 60)  # less than a tensor, and for axis 0 less than a row
    values = weights(9, 5, 7)
    values[:, 2] = 0
    if dtype == "u8" or (dtype == "u4" and scheme == "symmetric"):
        values = np.abs(values)
    place = "" if axis is None else f":axis={axis}"
    spec = f"{dtype}:{scheme}:per_group:group=4{place}:scales={scales}"
    report = packed(tmp_path, values, spec)
    expected = reference(values, QuantSpec.parse(spec), 2 if axis is None else axis)
    found, quant = loaded(tmp_path)
    assert quant.scheme == ("symmetric" if scheme == "symmetric" else "affine")
    assert (quant.scale.axis, quant.scale.group) == (2 if axis is None else axis, 4)
    assert quant.scale_dtype.name == scales
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)
    loss = report.tensors[0].loss
    assert loss is not None
    assert loss.largest == pytest.approx(np.abs(values - expected).max(), rel=1e-4)
    assert report.tensors[0].quantization == spec


@pytest.mark.parametrize("dtype", ["i8", "i4", "u4", "u8"])
def test_a_layer_computes_with_its_groups_in_simulator_and_c(dtype: str, tmp_path: Path) -> None:
    values = weights(16, 70) * np.linspace(0.01, 3, 70, dtype=np.float32)
    packed(tmp_path, values, f"{dtype}:per_group")
    real, _ = loaded(tmp_path)
    x = weights(3, 70, seed=1)
    layer = graph(f"""
        dynamic {{ x: f32[3, 70]; }} volatile {{ y: f32[3, 16]; }} constant {{ w: {dtype}[16, 70]; }}
        block entry {{ op linear(x, w) >> y; return y; }}
    """)
    with ModelLoader.open(tmp_path / "out.oinf") as model:
        for machine in (
            Simulator(model).make_executor(layer),
            Synthesizer("generic").synthesize(model, layer).build(),
        ):
            machine.insert(x=x)
            machine.run_step()
            np.testing.assert_allclose(machine.fetch("y"), x @ real.T, rtol=1e-4, atol=1e-3)


def test_groups_lose_less_than_channels(tmp_path: Path) -> None:
    values = weights(8, 256)
    values[:, 5] = 20
    losses = [packed(tmp_path, values, f"i4:{mode}").tensors[0].loss for mode in ("per_channel:axis=0", "per_group")]
    assert losses[0] is not None
    assert losses[1] is not None
    assert losses[1].snr_db > losses[0].snr_db + 6


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("i8:per_channel:group=8", "need per_group"),
        ("i8:scales=f16", "need per_group"),
        ("i8:per_group:group=0", "'group=0' is not understood"),
        ("i8:per_group:scales=f64", "'scales=f64' is not understood"),
        ("i8:per_group:group=8:group=8", "the group is given twice"),
        ("i8:per_group:axis=2", "so no axis 2 to quantize along"),
        ("u8:symmetric:per_group", "has negative values"),
    ],
)
def test_what_is_no_grouping_is_refused(spec: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(OinfError, match=message):
        packed(tmp_path, weights(4, 40), spec)
    assert not (tmp_path / "out.oinf").exists()


def test_numbers_too_large_for_half_precision_and_tensors_without_axes_are_refused(tmp_path: Path) -> None:
    large = np.full((2, 4), 1e30, np.float32)
    with pytest.raises(OinfError, match="too large for scales in f16"):
        packed(tmp_path, large, "i8:per_group")
    packed(tmp_path, large, "i8:per_group:scales=f32")
    with pytest.raises(OinfError, match="holds NaN or infinity"):
        packed(tmp_path, large * np.float32(np.inf), "i8:per_group")
    with pytest.raises(OinfError, match="has 0 dimensions, so no axis to quantize along"):
        packed(tmp_path, np.array(1, np.float32), "i8:per_group")
    packed(tmp_path, np.zeros((3, 0), np.float32), "u4:per_group")
    assert loaded(tmp_path)[0].shape == (3, 0)
