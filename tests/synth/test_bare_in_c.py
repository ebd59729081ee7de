"""Projects for a microcontroller, compiled for this machine: what plain C does there is what the simulator does."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from examples.digits.example import held_out

from openinfer import ModelLoader, Simulator, graph, load_graph
from openinfer.ir import Graph
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.project import Golden

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_i8"
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

RINGS = """
sizes { R := 5; }
dynamic { x: i16[3]; at: i32; }
volatile { before: i16[3]; some: f32[2]; all: f32[R]; whole: i16[R, 3]; chosen: i16[3]; }
persistent {
    t: u32;
    taps(i): i16[3] @init(7) @table @fixed(i=R);
    levels(i): f32 @init(1.5) @table @fixed(i=R);
}
block entry {
    assign wide: f32[3];
    assign level: f32;
    cache.read taps[(t+2)%R] >> before;
    cache.write x >> taps[t%R];
    op cast(x, to=f32) >> wide;
    op mean_axis(wide) >> level;
    cache.write level >> levels[(3*t+1)%R];
    cache.read levels[1..3] >> some;
    cache.read levels[0..R] >> all;
    cache.read taps[0..R] >> whole;
    cache.read taps[at] >> chosen;
    cache.increment t;
    return before, some, all, whole, chosen;
}
"""


def _steps(model: ModelLoader | None, source: Graph, inputs: list[dict[str, Any]]) -> list[Golden]:
    executor = Simulator(model).with_trace("off").make_executor(source)
    found = []
    for values in inputs:
        executor.insert(values)
        executor.run_step()
        found.append(Golden(values, {name: executor.fetch(name) for name in executor.bound.output_names}))
    return found


def _native(folder: Path) -> str:
    """What the self-test of a project prints, compiled for this machine."""
    sources = [*sorted(map(str, folder.glob("src/*.c"))), str(folder / "selftest/main.c")]
    command = ["gcc", *FLAGS, *SANITIZED, f"-I{folder / 'include'}", *sources, "-o", str(folder / "program")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    ended = subprocess.run([str(folder / "program")], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _all_right(steps: list[Golden]) -> str:
    count = sum(np.asarray(array).size for step in steps for array in step.outputs.values())
    return f"{count} of {count} values are right\n"


def _ring_inputs() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.integers(-99, 99, 3).astype(np.int16), "at": np.int32(one % 5)} for one in range(12)]


def test_rings_are_read_and_written_at_places_that_are_known(tmp_path: Path) -> None:
    """Cells that were never written have their first value; only the index of an input is asked for its range."""
    source = graph(RINGS)
    steps = _steps(None, source, _ring_inputs())
    plan = Synthesizer("cortex-m4", name="rings", weights="array").synthesize(None, source)
    plan.emit(tmp_path, steps)
    text = (tmp_path / "src/rings.c").read_text("ascii")
    assert text.count("oi_select(&grid, pick") == 1
    assert text.count("const int32_t cell = ") == 4
    assert _native(tmp_path) == _all_right(steps)


def test_products_in_pairs_are_the_same_in_plain_c(tmp_path: Path) -> None:
    images = held_out()[0][:3, np.newaxis]
    inputs: list[dict[str, Any]] = [{"image": one} for one in images]
    source = load_graph(f"{DIGITS}.oig")
    with ModelLoader.open(f"{DIGITS}.oinf") as model:
        steps = _steps(model, source, inputs)
        plan = Synthesizer("cortex-m4", name="digits", weights="array").synthesize(model, source)
        plan.emit(tmp_path, steps)
    kernels = (tmp_path / "src/kernels.c").read_text("ascii")
    assert kernels.count("oi_tile_i8_2x2") == 3
    assert _native(tmp_path) == _all_right(steps)
