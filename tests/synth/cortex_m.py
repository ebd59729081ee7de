"""Small models as bare-metal programs on an emulated Cortex-M4: ``make test-cortex-m`` installs what this needs."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.digits.example import STEMS, Precision, board_project, held_out
from examples.tones.example import chunks
from examples.tones.signals import Line, dialled
from tests.synth.small_models import SMALL_MODELS

from openinfer import Executor, ModelLoader, Simulator, graph, load_graph, quantize
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.report.footprint import Footprint
from openinfer.synth.targets.project import Golden

EXAMPLES = Path(__file__).parents[2] / "examples"
LEVELS = ("-O0", "-O2", "-O3", "-Os")
STRICT = "-Wall -Wextra -Werror"
COMPILER_RUNTIME = re.compile("__aeabi_|__(clz|popcount|mul|ctz)[a-z]+[23]$")
"""What the compiler itself brings: arithmetic that the processor has no instruction for."""


def emitted(name: str, folder: Path) -> tuple[Plan, list[Golden]]:
    small = SMALL_MODELS[name]
    model = small.saved(folder)
    plan = Synthesizer("cortex-m4", name=name, weights="array").synthesize(model, graph(small.text))
    golden = small.golden(model)
    plan.emit(folder, golden)
    return plan, golden


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-s", *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_the_self_test_passes_on_the_board(name: str, level: str, tmp_path: Path) -> None:
    """All steps are right with exactly the arena of the plan; one byte less is refused by ``init``."""
    _, golden = emitted(name, tmp_path)
    ended = make(tmp_path, "selftest", f"CFLAGS={level} {STRICT}")
    values = sum(array.size for step in golden for array in step.outputs.values())
    assert ended.stdout == f"{values} of {values} values are right\n", ended.stdout + ended.stderr
    assert ended.returncode == 0
    arena = json.loads((tmp_path / "plan.json").read_text("ascii"))["bytes"]["arena"]
    assert f"_ARENA_BYTES {arena}\n" in (tmp_path / f"include/{name}.h").read_text("ascii")
    text = (tmp_path / "selftest/main.c").read_text("ascii")
    assert f"init(&context, {name.upper()}_ARENA_BYTES - 1, " in text
    assert f"init(&context, {name.upper()}_ARENA_BYTES, {name.upper()}_STATE_BYTES, weights)" in text


def test_a_wrong_result_fails_on_the_board(tmp_path: Path) -> None:
    plan, golden = emitted("mlp", tmp_path)
    plan.emit(tmp_path, [Golden(golden[0].inputs, {"y": golden[0].outputs["y"] + 1})])
    ended = make(tmp_path, "selftest", "CFLAGS=-O2")
    assert "step 0: y[0] is" in ended.stdout
    assert ended.returncode != 0


def test_an_init_that_takes_less_memory_fails_on_the_board(tmp_path: Path) -> None:
    emitted("mlp", tmp_path)
    source = tmp_path / "src/mlp.c"
    text = source.read_text("ascii")
    assert "arena_bytes < MLP_ARENA_BYTES" in text
    source.write_text(text.replace("arena_bytes < MLP_ARENA_BYTES", "arena_bytes < MLP_ARENA_BYTES - 1"), "ascii")
    ended = make(tmp_path, "selftest", "CFLAGS=-O2")
    assert ended.stdout == "memory that is one byte too small was not refused\n"
    assert ended.returncode != 0


def test_the_example_runs_on_the_board(tmp_path: Path) -> None:
    emitted("mlp", tmp_path)
    ended = make(tmp_path, "example", f"CFLAGS=-O2 {STRICT}")
    assert ended.stdout.startswith("y: f32[2, 5] ="), ended.stdout + ended.stderr


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_the_library_needs_nothing_and_owns_nothing(name: str, tmp_path: Path) -> None:
    """No libm, no malloc, no input and output; no data to be copied or cleared at the start; stack frames are fixed."""
    emitted(name, tmp_path)
    ended = make(tmp_path, "all", f"CFLAGS=-O2 -fstack-usage {STRICT}")
    assert ended.returncode == 0, ended.stderr
    library = f"build/lib{name}.a"
    symbols = subprocess.run(
        ["arm-none-eabi-nm", library], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    kinds = re.findall(r"^(?:[0-9a-f]+)? *([A-Za-z]) (\S+)$", symbols, re.MULTILINE)
    assert not [symbol for kind, symbol in kinds if kind in "dDbBcC"]
    defined = {symbol for kind, symbol in kinds if kind != "U"}
    needed = {symbol for kind, symbol in kinds if kind == "U"} - defined - {"memcpy", "memset", "memmove", "memcmp"}
    assert not [symbol for symbol in needed if not COMPILER_RUNTIME.match(symbol)]
    frames = [line.split("\t") for file in tmp_path.glob("build/*.su") for line in file.read_text().splitlines()]
    assert frames
    assert {kind for _, _, kind in frames} == {"static"}
    print(f"{name}: the largest stack frame has {max(int(size) for _, size, _ in frames)} bytes")


@pytest.mark.parametrize("precision", STEMS)
def test_the_digits_example_reads_all_test_images_on_the_board(precision: Precision, tmp_path: Path) -> None:
    board_project(tmp_path, precision)
    ended = make(tmp_path, "example", f"CFLAGS=-O2 {STRICT}")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [f"This is a {label}." in ended.stdout for label in held_out()[1][3:6]] == [True] * 3
    assert "357 of 359 right" in ended.stdout


def samples_of(example: str) -> dict[str, Any]:
    """What an example is calibrated with: images, or a telephone call in noise, step by step."""
    if example == "digits":
        return {"image": held_out()[0][:40, np.newaxis]}
    sound, _ = dialled("0123456789", Line(snr_db=12), np.random.default_rng(3))
    return {"samples": np.stack(chunks(sound))}


def _step(executor: Executor, inputs: dict[str, Any]) -> Golden:
    executor.insert(inputs)
    executor.run_step()
    return Golden(inputs, {name: executor.fetch(name) for name in executor.bound.output_names})


@pytest.mark.parametrize("example", ["digits", "tones"])
def test_examples_quantized_by_the_command_run_on_the_board(example: str, tmp_path: Path) -> None:
    """All that the integer graphs give in the simulator, the board gives too."""
    samples = samples_of(example)
    source = EXAMPLES / example / example
    report = quantize(f"{source}.oig", f"{source}.oinf", tmp_path, samples)
    name, values = next(iter(samples.items()))
    with ModelLoader.open(report.model) as model:
        executor = Simulator(model).with_trace("off").make_executor(load_graph(report.graph))
        steps = [_step(executor, {name: one}) for one in values[:40]]
        plan = Synthesizer("cortex-m4", name=example, weights="array").synthesize(model, load_graph(report.graph))
        plan.emit(tmp_path / "project", steps)
    ended = make(tmp_path / "project", "selftest", f"CFLAGS=-O2 {STRICT}")
    count = sum(array.size for step in steps for array in step.outputs.values())
    assert ended.stdout == f"{count} of {count} values are right\n", ended.stdout + ended.stderr
    assert ended.returncode == 0


def test_the_report_measures_code_stack_and_instructions(tmp_path: Path) -> None:
    """As the compiler and the emulator of the device say; weights in a file are measured alike."""
    small = SMALL_MODELS["mlp"]
    plan = Synthesizer("cortex-m4", name="mlp").synthesize(small.saved(tmp_path), graph(small.text))
    found = plan.footprint()
    assert isinstance(found, Footprint)
    assert found.unmeasured == ()
    assert found.is_counted
    assert found.code is not None
    assert 1_000 < found.code < 8_192
    assert found.stack is not None
    assert 0 < found.stack < 1_024
    assert 2_000 < found.instructions < 1_000_000
    assert found.ram > plan.placed.arena_bytes + found.stack
    assert found.flash == found.code + plan.placed.weights.size


EDGES = (0.5, 1.5, -0.5, -2.5, 126.5, 127.5, -128.5, 255.5, 2.0**20, 2.0**31, 3e9, 1e30, np.inf, np.nan)
QUANTIZED = f"""
dynamic {{ x: f32[{2 * len(EDGES)}]; }}
constant {{ one: f32 @init(1.0); low: i8 @init(-128); high: u8 @init(255); far: i16 @init(-32768); }}
volatile {{ a: i8[{2 * len(EDGES)}]; b: u8[{2 * len(EDGES)}]; c: i16[{2 * len(EDGES)}]; d: i8[{2 * len(EDGES)}]; }}
block entry {{
    op quantize(x, one, low, to=i8) >> a;
    op quantize(x, one, high, to=u8) >> b;
    op quantize(x, one, far, to=i16) >> c;
    op quantize(x, one, to=i8) >> d;
    return a, b, c, d;
}}
"""


@pytest.mark.parametrize("level", LEVELS)
def test_quantization_saturates_on_the_board(level: str, tmp_path: Path) -> None:
    """Whatever is rounded: numbers that no integer holds, infinities and NaN."""
    source = graph(QUANTIZED)
    executor = Simulator(None).with_trace("off").make_executor(source)
    step = _step(executor, {"x": np.array([*EDGES, *(-one for one in EDGES)], np.float32)})
    Synthesizer("cortex-m4", name="edges", weights="array").synthesize(None, source).emit(tmp_path, [step])
    assert "oi_qadd" in (tmp_path / "src/kernels.c").read_text("ascii")
    ended = make(tmp_path, "selftest", f"CFLAGS={level} {STRICT}")
    count = 4 * 2 * len(EDGES)
    assert ended.stdout == f"{count} of {count} values are right\n", ended.stdout + ended.stderr
