"""Batch norms that are taken into weights as these are packed: what the layers compute then, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openinfer import ModelLoader, Simulator, graph
from openinfer.errors import OinfError
from openinfer.oinf.pack import PackOptions, pack

Arrays = dict[str, Any]


def weights(
    norm: str = "net.0.bn", names: tuple[str, ...] = ("weight", "bias", "running_mean", "running_var")
) -> Arrays:
    rng = np.random.default_rng(11)
    found = {"net.0.conv.weight": rng.normal(size=(6, 4, 3, 3)), "net.2.weight": rng.normal(size=(6, 6))}
    found |= {f"{norm}.{name}": np.abs(rng.normal(size=6)) + 0.1 for name in names}
    return {name: one.astype(np.float32) for name, one in found.items()} | {f"{norm}.num_batches_tracked": np.array(7)}


def packed(folder: Path, arrays: Arrays, *rules: str, **more: Any) -> ModelLoader:
    np.savez(folder / "w.npz", **arrays)
    pack([folder / "w.npz"], folder / "w.oinf", PackOptions(fold_batch_norm=rules, **more))
    return ModelLoader.open(folder / "w.oinf")


@pytest.mark.parametrize(
    "names",
    [("weight", "bias", "running_mean", "running_var"), ("gamma", "beta", "moving_mean", "moving_variance")],
    ids=["as PyTorch names them", "as Keras does"],
)
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_folded_layer_computes_what_it_and_its_norm_do(
    names: tuple[str, ...], has_bias: bool, tmp_path: Path
) -> None:
    arrays = weights(names=names)
    if has_bias:
        arrays["net.0.conv.bias"] = np.linspace(-1, 1, 6).astype(np.float32)
    model = packed(tmp_path, arrays, "net.*.conv=net.*.bn:eps=1e-3")
    assert sorted(model.tensors) == ["net.0.conv.bias", "net.0.conv.weight", "net.2.weight"]
    text = """dynamic { x: f32[1, 4, 5, 5]; w: f32[6, 4, 3, 3]; b: f32[6]; } volatile { y: f32[1, 6, 3, 3]; }
    block entry { op conv2d(x, w, b) >> y; return y; }"""
    executor = Simulator(None).make_executor(graph(text))
    x = np.random.default_rng(2).normal(size=(1, 4, 5, 5)).astype(np.float32)

    def convolved(w: Any, b: Any) -> Any:
        executor.insert(x=x, w=w, b=b)
        executor.run_step()
        return executor.fetch("y").astype(np.float64)

    found = convolved(*(model.load(f"net.0.conv.{part}").to_numpy() for part in ("weight", "bias")))
    gamma, beta, mean, var = (arrays[f"net.0.bn.{name}"][:, None, None].astype(np.float64) for name in names)
    plain = convolved(arrays["net.0.conv.weight"], arrays.get("net.0.conv.bias", np.zeros(6, np.float32)))
    assert np.allclose(found, (plain - mean) / np.sqrt(var + 1e-3) * gamma + beta, rtol=0, atol=1e-5)


def test_casts_and_quantization_see_the_folded_weights(tmp_path: Path) -> None:
    model = packed(tmp_path, weights(), "net.0.conv=net.0.bn", cast=["net.0.conv.*=bf16"])
    assert {model.tensors[f"net.0.conv.{part}"].dtype.name for part in ("weight", "bias")} == {"bf16"}


def test_norms_without_gamma_and_beta_have_ones_and_zeros(tmp_path: Path) -> None:
    arrays = weights(names=("running_mean", "running_var"))
    model = packed(tmp_path, arrays, "net.0.conv=net.0.bn")
    factor = 1 / np.sqrt(arrays["net.0.bn.running_var"].astype(np.float64) + 1e-5)
    wanted = -arrays["net.0.bn.running_mean"] * factor
    assert np.allclose(model.load("net.0.conv.bias").to_numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (("net.*.conv=net.bn",), "cannot understand"),
        (("net.0.conv=net.0.bn:eps=x",), "cannot understand"),
        (("net.0.conv=net.0.bn:epsilon=1",), "cannot understand"),
        (("net.1.conv=net.0.bn",), "matches no tensor"),
        (("net.0.conv=net.9.bn",), "there is no tensor 'net.9.bn.running_mean'"),
        (("net.0.conv=net.0.bn", "net.*.conv=net.*.bn"), "both"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(OinfError, match=said):
        packed(tmp_path, weights(), *rules)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("net.0.bn.running_var", np.full(6, -2, np.float32), "not all finite"),
        ("net.0.bn.running_mean", np.ones(5, np.float32), "channels"),
        ("net.0.conv.weight", np.ones((6, 4, 3, 3), np.int8), "in floats"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(name: str, value: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(OinfError, match=said):
        packed(tmp_path, weights() | {name: value}, "net.0.conv=net.0.bn")
