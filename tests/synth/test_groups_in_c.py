"""Weights that are quantized in groups, in generated C next to the simulator: products, lookups, whole tensors."""

from pathlib import Path

import numpy as np
import pytest
from tests.oinf.test_groups import stored
from tests.synth.flags import USUAL

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.errors import GraphError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.oinf.quant import Scheme

TEXT = """
dynamic {{ x: f32[{rows}, {columns}]; ids: i32[3]; }}
volatile {{ y: f32[{rows}, {out}]; picked: f32[3, {columns}]; whole: f32[{out}, {columns}]; }}
constant {{ w: {dtype}[{out}, {columns}]; }}
block entry {{
    op linear(x, w) >> y;
    op embedding(w, ids) >> picked;
    op dequantize(w) >> whole;
    return y, picked, whole;
}}
"""


@pytest.mark.parametrize(
    ("scheme", "dtype", "shape", "axis", "rows"),
    [
        ("affine", np.float16, (96, 128), 1, 1),
        ("affine", np.float32, (70, 64), 1, 5),
        ("symmetric", np.float16, (96, 64), 1, 1),
        ("symmetric", np.float32, (40, 70), 1, 3),  # the last group is shorter
        ("asymmetric", np.float16, (64, 64), 1, 1),
        ("symmetric", np.float16, (70, 64), 1, 20),  # many rows: a panel is converted once for all of them
        ("affine", np.float16, (70, 40), 0, 2),
    ],
)
def test_products_lookups_and_whole_tensors_agree(
    tmp_path: Path, scheme: Scheme, dtype: type, shape: tuple[int, int], axis: int, rows: int
) -> None:
    spec = stored(scheme, dtype, shape, axis)
    save_file(tmp_path / "w.oinf", {"w": spec})
    text = TEXT.format(rows=rows, out=shape[0], columns=shape[1], dtype=spec.dtype)

    rng = np.random.default_rng(0)
    x, ids = rng.standard_normal((rows, shape[1])).astype(np.float32), np.array([0, shape[0] - 1, 7], np.int32)
    with ModelLoader.open(tmp_path / "w.oinf") as model:
        wanted = Simulator(model).make_executor(graph(text))(x=x, ids=ids)
        y, picked, whole = Synthesizer().synthesize(model, graph(text)).build(flags=USUAL)(x=x, ids=ids)
    magnitudes = np.abs(x) @ np.abs(wanted[2]).T
    assert (np.abs(y - wanted[0]) <= shape[1] * 2e-7 * magnitudes).all()
    assert np.array_equal(picked, wanted[1])
    assert np.array_equal(whole, wanted[2])


def test_entries_of_a_table_that_are_quantized_in_different_ways_are_refused(tmp_path: Path) -> None:
    other = QuantParams("symmetric", QuantScale.per_group(1, 16, np.ones((3, 5), np.float16)))
    one = stored("symmetric", np.float16)
    save_file(tmp_path / "w.oinf", {"w.0": one, "w.1": TensorSpec(one.values, "i4", quant=other)})
    text = """
    dynamic { x: f32[70]; }
    volatile { y: f32[3]; }
    constant { W(l): i4[3, 70] @pattern("w.{l}"); }
    block entry { loop layers (l in 0..2) { op linear(x, W[l]) >> y; } return y; }
    """
    with ModelLoader.open(tmp_path / "w.oinf") as model, pytest.raises(GraphError, match="quantized in different ways"):
        Synthesizer().synthesize(model, graph(text))


def test_a_part_of_a_tensor_in_groups_is_refused(tmp_path: Path) -> None:
    save_file(tmp_path / "w.oinf", {"w": stored("symmetric", np.float16)})
    text = """
    dynamic { x: f32[70]; }
    volatile { y: f32[2]; }
    constant { w: i4[3, 70]; }
    block entry { op linear(x, w[1..3, ]) >> y; return y; }
    """
    with ModelLoader.open(tmp_path / "w.oinf") as model, pytest.raises(GraphError, match="quantized in groups"):
        Synthesizer().synthesize(model, graph(text))
