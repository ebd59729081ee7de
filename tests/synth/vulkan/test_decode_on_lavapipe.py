"""The decoder of the benchmark, small: what fusion and the schedule make of it, and that it computes what it should."""

import re
from pathlib import Path

import numpy as np
import pytest
from bench.gpu.decode import TEXT, LlamaShape, saved, text_of
from tests.synth.vulkan.on_device import on_lavapipe, with_ordered_launches

from openinfer import Simulator, Synthesizer, graph
from openinfer.errors import ExecutionError
from openinfer.synth.program.ir import KernelStep, LoopStep
from openinfer.synth.targets.simt.launches import Launches

SMALL = LlamaShape(layers=1, width=128, heads=8, groups=2, head=32, hidden=192, classes=96, tokens=40)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_steps_of_a_decoder_are_those_of_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ordered: bool
) -> None:
    for name, value in on_lavapipe().items():
        monkeypatch.setenv(name, value)
    model = saved(SMALL, tmp_path / "model.oinf", seed=1)
    device = with_ordered_launches("lavapipe") if is_ordered else "lavapipe"
    plan = Synthesizer(device, name="decode").synthesize(model, graph(TEXT))
    assert ("oi_await();" in "".join(plan.project.code().values())) == is_ordered
    module = plan.build()
    executor = Simulator(model).make_executor(graph(TEXT))
    for step in range(5):
        for one in (module, executor):
            one.insert({"token": np.array([step * 5 % SMALL.classes], np.int32)})
            one.run_step()
    wanted, found = (one.fetch("logits").astype(np.float32) for one in (executor, module))
    np.testing.assert_allclose(found, wanted, atol=0.03 * float(np.abs(wanted).max()))
    for name in ("K", "V"):
        ours, theirs = (one.fetch(name).astype(np.float32) for one in (module, executor))
        np.testing.assert_allclose(ours, theirs, atol=0.1)
    # Launches look whether an earlier one has failed where they begin to write: then, nothing is written.
    before = module.save_state()
    module.insert({"token": np.array([SMALL.classes], np.int32)})
    with pytest.raises(ExecutionError, match="an index is out of range"):
        module.run_step()
    assert module.save_state() == before


@pytest.mark.parametrize("weights", ["i8", "u4"])
def test_steps_with_weights_of_few_bits_are_those_of_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    for name, value in on_lavapipe().items():
        monkeypatch.setenv(name, value)
    shape = LlamaShape(layers=1, width=256, heads=8, groups=2, head=32, hidden=192, classes=96, tokens=40)
    model = saved(shape, tmp_path / "model.oinf", seed=1, weights=weights)
    text = text_of(weights)
    module = Synthesizer(with_ordered_launches("lavapipe"), name="decode").synthesize(model, graph(text)).build()
    executor = Simulator(model).make_executor(graph(text))
    for step in range(3):
        for one in (module, executor):
            one.insert({"token": np.array([step * 5 % shape.classes], np.int32)})
            one.run_step()
    wanted, found = (one.fetch("logits").astype(np.float32) for one in (executor, module))
    np.testing.assert_allclose(found, wanted, atol=0.03 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("weights", ["bf16", "i8", "i4"])
def test_a_layer_of_a_decoder_is_few_launches(tmp_path: Path, weights: str) -> None:
    shape = LlamaShape(layers=2, width=1024, heads=8, groups=4, head=64, hidden=2048, classes=512, tokens=64)
    model = saved(shape, tmp_path / "model.oinf", weights=weights)
    program = Synthesizer("h200-vulkan", name="decode").synthesize(model, graph(text_of(weights))).project.program
    (loop,) = (step for step in program.steps() if isinstance(step, LoopStep))
    forms: list[str] = []
    for step in loop.body:
        if isinstance(step, KernelStep):
            assert isinstance(step.schedule, Launches)
            forms += [f"{step.kernel.name}: {launch.form.partition(':')[0]}" for launch in step.schedule.launches]
    products = ["rms_norm_linear_reshape_rope: vectors"] * 2 + ["rms_norm_linear_reshape: vectors"]
    attended = ["sdpa_linear_add: attention", "sdpa_linear_add: vectors"]
    rest = ["rms_norm_linear_silu_linear_mul: vectors", "linear_add: vectors"]
    assert forms == [*products, *attended, *rest]


def test_launches_of_an_h200_read_nothing_but_weights_before_they_wait(tmp_path: Path) -> None:
    shape = LlamaShape(layers=1, width=256, heads=8, groups=4, head=64, hidden=512, classes=512, tokens=64)
    model = saved(shape, tmp_path / "model.oinf")
    code = Synthesizer("h200-vulkan", name="decode").synthesize(model, graph(TEXT)).project.code()
    shaders = {path: text for path, text in code.items() if path.startswith("shaders/k")}
    waiting = {path: text.split("oi_await();") for path, text in shaders.items() if "oi_await();" in text}
    # All products, and attention; what comes before the layers and behind them has barriers.
    assert 7 <= len(waiting) < len(shaders)
    ahead: set[str] = set()
    for path, (before, after) in waiting.items():
        name = f"decode_{Path(path).stem}"
        assert "oi_ended();" in after
        assert f"{{ {name}, sizeof {name}, OI_FOR_LAUNCHES, 0 }}" in code["src/shaders.c"]
        ahead |= set(re.findall(r"(\w+)\)?\.v\[", before))
    assert "w" in ahead
    assert ahead <= {"w", "w_2"}
    assert code["src/shaders.c"].count("OI_FOR_LAUNCHES, 0 }") == len(waiting) + 1  # copies, which are between them
