"""Parts of plain tensors: brackets on dynamic, volatile and constant variables and on temporaries."""

from pathlib import Path

import numpy as np
import pytest
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, step_error, text_codes

from openinfer import ModelLoader
from openinfer.errors import Code
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file

NINE = np.arange(9, dtype=np.float32).reshape(3, 3)


@sentence("part.read")
def test_parts_of_every_kind_of_memory_are_operands() -> None:
    done = after_step(
        """
        dynamic { x: f32[3, 3]; } constant { c: f32[2] @init(10.0); }
        volatile { v: f32[3] @init(100.0); y: f32[2]; s: f32; }
        block entry {
            assign h: f32[3, 3];
            transfer x >> h;
            op add(x[1, 0..2], c) >> y;
            op add(y, v[1..]) >> y;
            op add(y, h[0..2, 2]) >> y;
            op add(c[0], h[2, 2]) >> s;
            return y, s;
        }""",
        x=NINE,
    )
    assert done.fetch("y").tolist() == [3 + 10 + 100 + 2, 4 + 10 + 100 + 5]
    assert done.fetch("s") == 18


@sentence("part.read")
def test_a_part_of_an_inferred_temporary_is_an_operand() -> None:
    text = "dynamic { x: f32[3, 3]; } block entry { t = op neg(x); u = op relu(t[1, ]); return u; }"
    assert after_step(text, x=-NINE).fetch("u").tolist() == [3, 4, 5]
    assert binding_codes(text.replace("t[1, ]", "t[1]")) == [Code.BAD_INDEXING]


@sentence("part.read")
def test_parts_are_moved_by_transfers_and_cache_nodes() -> None:
    done = after_step(
        """
        dynamic { x: f32[3, 3]; } volatile { y: f32[3, 3]; } persistent { K(t): f32[3] @table; }
        block entry { cache.write x[2, ] >> K[1]; transfer x[0, ] >> y[1, ]; cache.read K[1] >> y[, 0]; return y; }""",
        x=NINE,
    )
    assert done.fetch("y").tolist() == [[6, 0, 0], [7, 1, 2], [8, 0, 0]]


@sentence("part.write")
def test_the_rest_of_a_written_variable_keeps_its_value() -> None:
    text = """dynamic { x: f32[3]; } volatile { v: f32[3] @init(5.0); }
    block entry { op neg(x[0..2]) >> v[1..]; op add(v[0], x[2]) >> x[0]; return v, x; }"""
    ready = executor(text)
    for _ in range(2):  # volatile memory begins anew in each step
        step(ready, x=floats(1, 2, 3))
        assert ready.fetch("v").tolist() == [5, -1, -2]
        assert ready.fetch("x").tolist() == [8, 2, 3]


@sentence("part.places")
@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("transfer x[0] >> c[0];", Code.CONSTANT_WRITTEN),
        ("cache.write x[0] >> v[0];", Code.BAD_CACHE_TARGET),
        ("cache.read x[0] >> v[0];", Code.BAD_CACHE_TARGET),
        ("transfer x[0, 0] >> v[0];", Code.BAD_INDEXING),
        ("transfer x[f] >> v[0];", Code.BAD_INDEXING),
        ("transfer x[-1] >> v[0];", Code.NEGATIVE_INDEX),
    ],
)
def test_parts_stand_where_their_variables_may(node: str, code: Code) -> None:
    text = f"""dynamic {{ x: f32[3]; f: f32; }} constant {{ c: f32[3] @init(1.0); }} volatile {{ v: f32[3]; }}
    block entry {{ {node} return; }}"""
    assert text_codes(text) == [code]


@sentence("part.outside")
def test_what_is_outside_is_an_error_as_early_as_it_can_be_told() -> None:
    text = "dynamic { x: f32[3]; i: i32; } volatile { y: f32; } block entry { transfer x[i] >> y; return y; }"
    assert binding_codes(text.replace("x[i]", "x[3]")) == [Code.INDEX_OUT_OF_RANGE]
    ready = executor(text)
    assert step(ready, x=floats(1, 2, 3), i=2).fetch("y") == 3
    assert step_error(ready, x=floats(1, 2, 3), i=3).code is Code.INDEX_OUT_OF_RANGE
    assert step_error(ready, x=floats(1, 2, 3), i=-1).code is Code.NEGATIVE_INDEX


DYNAMIC = """sizes { T <= 8; } dynamic { x: f32[T]; } volatile { most: f32[T-1]; two: f32[2]; last: f32; }
block entry { op neg(x[1..]) >> most; transfer x[0..2] >> two; transfer x[T-1] >> last; return most, two, last; }"""


@sentence("part.dynamic")
def test_a_part_of_a_dynamic_extent_is_what_the_step_has() -> None:
    ready = executor(DYNAMIC)
    for extent in (2, 5, 8):
        values = np.arange(extent, dtype=np.float32)
        step(ready, x=values)
        assert ready.fetch("most").tolist() == (-values[1:]).tolist()
        assert (ready.fetch("two").tolist(), ready.fetch("last")) == ([0, 1], extent - 1)
    assert step_error(ready, x=floats(1)).code is Code.INDEX_OUT_OF_RANGE


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path: Path = tmp_path_factory.mktemp("parts") / "quantized.oinf"
    values = [[1, 2, 3], [4, 5, 6]]
    scales = {"w": QuantScale.per_tensor(0.5), "v": QuantScale.per_channel(1, [1.0, 10.0, 100.0])}
    save_file(
        path,
        {name: TensorSpec(values, "i8", quant=QuantParams("symmetric", scale)) for name, scale in scales.items()},
    )
    return ModelLoader.open(path)


@sentence("part.quantized")
def test_a_part_of_a_quantized_tensor_is_quantized(quantized: ModelLoader) -> None:
    text = """constant { w: i8[2, 3]; v: i8[2, 3]; } volatile { a: f32[3]; b: f32[3]; }
    block entry { op dequantize(w[1, ]) >> a; op dequantize(v[1, ]) >> b; return a, b; }"""
    done = after_step(text, quantized)
    assert done.fetch("a").tolist() == [2, 2.5, 3]
    assert done.fetch("b").tolist() == [4, 50, 600]
    cut = "constant { v: i8[2, 3]; } block entry { t = op dequantize(v[, 1..]); return t; }"
    assert binding_codes(cut, quantized) == [Code.BAD_INDEXING]
