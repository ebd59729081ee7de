"""Convolutions by Winograd's filters: only where they are allowed, and within the bound that was measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from openinfer import DeviceArch, ModelLoader, Passes, Plan, Simulator, Synthesizer, graph
from openinfer.cli.app import app
from openinfer.dtypes import DTYPES, Array
from openinfer.loops.interpret import interpret
from openinfer.loops.verify import verify
from openinfer.oinf import save_file
from openinfer.synth.passes.winograd import best_form, error_bound
from openinfer.synth.passes.winograd_kernels import F2, F4, ConvShape, Winograd, input_kernel, product_kernel
from openinfer.synth.passes.winograd_kernels import result_kernel as results
from openinfer.synth.targets.project import Golden
from openinfer.synth.targets.target import Allowed

FEATURES = 64
ALLOWED = Passes(allow=frozenset({Allowed.WINOGRAD}))


def text(params: str = "pads=1", said: str = "", channels: int = 16, extent: int = 20) -> str:
    return f"""
        dynamic {{ x: f32[1, {channels}, {extent}, {extent}]; }}
        constant {{ w: f32[{FEATURES}, {channels}, 3, 3]; b: f32[{FEATURES}]; }}
        block entry {{ y = op conv2d(x, w, b, {params}) {said}; return y; }}
    """


def model(folder: Path, channels: int = 16) -> str:
    rng, path = np.random.default_rng(3), str(folder / "net.oinf")
    shapes = {"w": (FEATURES, channels, 3, 3), "b": (FEATURES,)}
    save_file(path, {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
    return path


def plan(folder: Path, source: str, passes: Passes | None = None, device: str | DeviceArch = "x86-avx2") -> Plan:
    return Synthesizer(device, name="net", passes=passes).synthesize(ModelLoader.open(model(folder)), graph(source))


def exact(shape: ConvShape, x: Array, w: Array) -> Array:
    """What the convolution is, in f64."""
    down, across = shape.result
    image = np.zeros((*x.shape[:2], down + 2, across + 2))
    image[:, :, shape.top : shape.top + shape.height, shape.left : shape.left + shape.width] = x
    parts = (
        np.einsum("nchw,oc->nohw", image[:, :, i : i + down, j : j + across], w[:, :, i, j].astype(np.float64))
        for i in range(3)
        for j in range(3)
    )
    return np.asarray(sum(parts))


@pytest.mark.parametrize("form", [F2, F4], ids=["F2", "F4"])
@pytest.mark.parametrize(
    "shape",
    [
        ConvShape(1, 2, 3, 4, 4, 1, 1, (4, 4)),
        ConvShape(2, 1, 2, 5, 7, 0, 0, (3, 5)),
        ConvShape(1, 3, 2, 3, 6, 2, 1, (6, 6)),
        ConvShape(1, 1, 1, 1, 1, 1, 1, (1, 1)),
        ConvShape(1, 1, 2, 9, 5, 0, 3, (8, 9)),
    ],
    ids=str,
)
def test_transforms_and_products_are_a_convolution_at_every_edge(form: Winograd, shape: ConvShape) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(shape.batch, shape.channels, shape.height, shape.width)).astype(np.float32)
    w = rng.normal(size=(shape.features, shape.channels, 3, 3)).astype(np.float32)
    bias = rng.normal(size=shape.features).astype(np.float32)
    kernels = input_kernel(shape, form), product_kernel(shape, form), results(shape, form, has_bias=True)
    assert [verify(kernel) for kernel in kernels] == [[], [], []]
    (tiles,) = interpret(kernels[0], (x,))
    (sums,) = interpret(kernels[1], (tiles, form.transformed(w)))
    (found,) = interpret(kernels[2], (sums, bias))
    wanted = exact(shape, x, w) + bias[:, None, None]
    assert np.abs(found - wanted).max() <= 2e-5


def test_nothing_is_done_unless_it_is_allowed(tmp_path: Path) -> None:
    """A node says so itself, the user says so for all, or a device prefers it; a node that says no is left alone."""
    wishes = {"preferences": {"allow": ["winograd"]}}
    preferring = DeviceArch.from_json(DeviceArch.named("x86-avx2").to_json() | wishes)
    said, denied = "with { winograd = true }", "with { winograd = false }"
    assert plan(tmp_path, text()).inexact == ()
    assert [one.form for one in plan(tmp_path, text(), ALLOWED).inexact] == ["Winograd F(4x4, 3x3)"]
    assert len(plan(tmp_path, text(said=said)).inexact) == 1
    assert len(plan(tmp_path, text(), device=preferring).inexact) == 1
    assert plan(tmp_path, text(said=denied), ALLOWED).inexact == ()
    assert "inexact" not in plan(tmp_path, text()).facts()
    assert plan(tmp_path, text(), ALLOWED, "cortex-m4").inexact == ()


@pytest.mark.parametrize(
    "params", ["strides=2", "dilations=2", 'pads=1, layout="NHWC"', "pads=1, acc=[f64]", "pads=1, acc=[f32, f64]"]
)
def test_other_convolutions_stay_as_they_are(tmp_path: Path, params: str) -> None:
    source = text(params, extent=16)
    assert plan(tmp_path, source, ALLOWED).inexact == ()


def test_a_form_is_chosen_by_what_it_costs() -> None:
    """Few channels are not worth transforms, and few tiles not worth more weights."""
    assert best_form(ConvShape(1, 128, 128, 28, 28, 1, 1, (28, 28))) is F4
    assert best_form(ConvShape(1, 512, 512, 7, 7, 1, 1, (7, 7))) is F2
    assert best_form(ConvShape(1, 3, 32, 112, 112, 1, 1, (112, 112))) is None
    assert best_form(ConvShape(1, 512, 512, 2, 2, 1, 1, (2, 2))) is None


Fill = Callable[[np.random.Generator, tuple[int, ...]], Array]
FILLS: dict[str, Fill] = {
    "numbers": lambda rng, shape: rng.normal(size=shape),
    "tenths": lambda _rng, shape: np.full(shape, 0.1),
    "magnitudes": lambda rng, shape: np.resize([1e3, 1e-3], shape) * rng.choice([-1, 1], shape),
}


@pytest.mark.parametrize(("channels", "extent", "form"), [(16, 21, F4), (320, 6, F2)], ids=["F4", "F2"])
def test_compiled_code_stays_within_the_measured_bound(
    tmp_path: Path, channels: int, extent: int, form: Winograd
) -> None:
    source, loader = graph(text(channels=channels, extent=extent)), ModelLoader.open(model(tmp_path, channels))
    shape = ConvShape(1, channels, FEATURES, extent, extent, 1, 1, (extent, extent))
    assert best_form(shape) is form
    made = Synthesizer("x86-avx2", name="net", passes=ALLOWED).synthesize(loader, source)
    assert len(made.inexact) == 1
    module, simulated, rng = made.build(), Simulator(loader).make_executor(source), np.random.default_rng(11)
    w, bias = (loader.load(name).to_numpy() for name in ("w", "b"))
    for fill in FILLS.values():
        x = fill(rng, (1, channels, extent, extent)).astype(np.float32)
        found: Any = module(x=x)
        most = (exact(shape, np.abs(x), np.abs(w)) + np.abs(bias)[:, None, None]).max()
        wanted: Any = simulated(x=x)
        assert np.abs(found.astype(np.float64) - wanted).max() <= error_bound(channels, form) * most


def test_a_self_test_knows_that_results_are_less_exact(tmp_path: Path) -> None:
    """Its usual tolerance for f32 is that of exact sums."""
    golden = Golden({"x": np.zeros((1, 16, 20, 20), np.float32)}, {"y": np.ones((1, FEATURES, 20, 20), np.float32)})
    usual, looser = (plan(tmp_path, text(), one).files([golden])["selftest/main.c"] for one in (None, ALLOWED))
    tolerance = DTYPES["f32"].tolerance
    assert f"{tolerance!r});" in str(usual)
    assert f"{tolerance * 10!r});" in str(looser)


def test_the_command_allows_it_and_reports_the_bound(tmp_path: Path) -> None:
    source = tmp_path / "net.oig"
    source.write_text(text())
    command = ["synth", str(source), "--model", model(tmp_path), "--device", "x86-avx2", "--report"]
    found = CliRunner().invoke(app, [*command, "--allow", "winograd"])
    assert found.exit_code == 0, found.output
    assert "less exact, as allowed: 1" in found.output
    assert "Winograd F(4x4, 3x3): errors up to 5e-06 of the largest sum of magnitudes" in found.output
    assert "less exact" not in CliRunner().invoke(app, command).output
