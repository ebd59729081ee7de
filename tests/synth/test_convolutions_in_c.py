"""Convolutions with what follows them, and pooling, as whole projects: they compute what the simulator computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.scheduled_in_c import F32, kernel_for

from openinfer import ModelLoader, Simulator
from openinfer.lang import graph
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import INDEX, Bind, Buffer, Const, For, Load, ScalarVar, SetLocal, Space, walk
from openinfer.oinf import save_file
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.cpu.machine import AVX512, runnable
from openinfer.synth.targets.cpu.run_on import loops_as_one
from openinfer.synth.targets.cpu.schedule import scheduled

DEVICES = {"generic": "generic", "avx2": "x86-avx2", "avx512": "x86-avx512"}
LAYERS = [
    # the input, the weights, the parameters of the convolution, what follows, the result
    ((1, 24, 14, 14), (48, 24, 1, 1), "", "relu(h, clamp_max=6.0)", (1, 48, 14, 14)),
    ((1, 24, 7, 7), (40, 24, 1, 1), "", "hard_swish(h)", (1, 40, 7, 7)),
    ((1, 24, 14, 14), (24, 24, 1, 1), "", "add(h, x)", (1, 24, 14, 14)),
    ((1, 6, 14, 14), (6, 1, 3, 3), "pads=[1], groups=6", "relu(h, clamp_max=6.0)", (1, 6, 14, 14)),
    ((1, 6, 13, 13), (6, 1, 5, 5), "pads=[2], strides=[2], groups=6", "hard_swish(h)", (1, 6, 7, 7)),
    ((1, 6, 7, 7), (6, 1, 3, 3), "pads=[1], groups=6", "add(h, x)", (1, 6, 7, 7)),
    ((1, 3, 20, 60), (8, 3, 3, 3), "pads=[1], strides=[2]", "relu(h)", (1, 8, 10, 30)),
]


def text() -> str:
    inputs, hidden, lines, results = [], [], [], []
    for number, (x, w, params, after, y) in enumerate(LAYERS):
        inputs.append(f"x{number}: f32{list(x)};")
        hidden.append(f"w{number}: f32{list(w)}; b{number}: f32[{w[0]}]; h{number}: f32{list(y)};")
        hidden.append(f"y{number}: f32{list(y)}; m{number}: f32[1, {w[0]}, 1, 1];")
        lines.append(f"op conv2d(x{number}, w{number}, b{number}{', ' * bool(params)}{params}) >> h{number};")
        own = after.replace("(h", f"(h{number}").replace(", x)", f", x{number})")
        lines.append(f"op {own} >> y{number}; op global_avg_pool(y{number}) >> m{number};")
        results += [f"y{number}", f"m{number}"]
    return f"""dynamic {{ {" ".join(inputs)} }} volatile {{ {" ".join(hidden)} }}
    block entry {{ {" ".join(lines)} return {", ".join(results)}; }}"""


def saved(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A model file with weights for all layers, and inputs: whole numbers, so that any order of a sum is right."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    for number, (x, w, *_) in enumerate(LAYERS):
        inputs[f"x{number}"] = rng.integers(-3, 4, x).astype(np.float32)
        weights |= {f"w{number}": rng.integers(-3, 4, w).astype(np.float32)}
        weights |= {f"b{number}": rng.integers(-3, 4, w[0]).astype(np.float32)}
    save_file(folder / "m.oinf", weights)
    return folder / "m.oinf", inputs


@pytest.mark.parametrize("isa", [one.isa for one in runnable() if one.isa in DEVICES])
def test_layers_compute_what_the_simulator_computes(isa: str, tmp_path: Path) -> None:
    path, inputs = saved(tmp_path)
    own = graph(text())
    with ModelLoader.open(path) as loader:
        wanted = Simulator(loader).make_executor(own)
        plan = Synthesizer(DEVICES[isa]).synthesize(loader, own)
        module = plan.build(flags=("-std=c11", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"))
        for machine in (wanted, module):
            machine.insert(inputs)
            machine.step()
        for number in range(len(LAYERS)):
            np.testing.assert_array_equal(module.fetch(f"y{number}"), wanted.fetch(f"y{number}"), str(LAYERS[number]))
            # Each op rounds as alone: sums of a plane are in another order only.
            np.testing.assert_allclose(module.fetch(f"m{number}"), wanted.fetch(f"m{number}"), rtol=1e-6)


def test_the_sum_of_a_plane_of_short_rows_runs_in_lanes() -> None:
    plain = kernel_for("global_avg_pool", (1, 2, 9, 9))
    kernel, _ = scheduled(plain, AVX512, frozenset())
    loops = [one for one in walk(kernel.body) if isinstance(one, For) and one.bind is Bind.LANES]
    assert [one.extent for one in loops] == [Const(81, INDEX)]
    assert "x[i2 * 81 + i7]" in printed(kernel, "k").text
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 9, 9)).astype(np.float32)
    np.testing.assert_array_equal(interpret(kernel, [x])[0], interpret(plain, [x])[0])


def test_rows_that_lie_apart_are_no_plane() -> None:
    """Of each row every other element is read, or a row is left out: the loops stay two."""
    rows, columns = ScalarVar("i"), ScalarVar("j")
    x = Buffer("x", F32, (9, 18), Space.ARENA)
    inner = For(columns, Const(9, INDEX), (SetLocal(ScalarVar("s", F32), Load(x, (rows, columns))),))
    assert loops_as_one(For(rows, Const(9, INDEX), (inner,)), inner, 9, 9) is None
