"""Literals and loop indices as operands: their dtypes, and what these can hold."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, text_codes

from openinfer import GraphError, bind, graph
from openinfer.errors import Code, Span
from openinfer.ops import Array


def result(declarations: str, node: str, kind: str, **inputs: Any) -> Array:
    """What a node gives that writes y."""
    text = f"dynamic {{ {declarations} }} volatile {{ y: {kind}; }} block entry {{ {node} return y; }}"
    found: Array = after_step(text, **inputs).fetch("y")
    return found


@sentence("literal.operand")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("op add(x, 1.0)", [0, 1, 3]),
        ("op max(x, 0)", [0, 0, 2]),
        ("op max(0, x)", [0, 0, 2]),
        ("op sub(x, -2)", [1, 2, 4]),
        ("op add(a=x, b=0.5)", [-0.5, 0.5, 2.5]),
        ("op add(x, -inf)", [-np.inf] * 3),
        ("op fma(x, 2, 1e1)", [8, 10, 14]),
        ("op where(true, x, nan)", [-1, 0, 2]),
        ("op mul(x, 0x10)", [-16, 0, 32]),
    ],
)
def test_numbers_are_operands(call: str, expected: list[float]) -> None:
    assert result("x: f32[3];", f"{call} >> y;", "f32[3]", x=floats(-1, 0, 2)).tolist() == expected


@sentence("literal.operand")
def test_a_literal_beside_a_slice_of_unknown_length_is_typed_while_running() -> None:
    text = """sizes { T <= 4; } dynamic { x: f32[3]; } volatile { y: f32[T]; } persistent { n: i32 @init(1); }
    block entry { op mul(x[0..n], b=2) >> y; cache.increment n; return y; }"""
    ready = executor(text)
    for expected in ([2], [2, 4], [2, 4, 6]):
        assert step(ready, x=floats(1, 2, 3)).fetch("y").tolist() == expected


@sentence("literal.dtype")
@pytest.mark.parametrize("dtype", ["u8", "i64", "f16", "f64", "u4", "t2"])
def test_a_literal_has_the_dtype_of_the_other_operands(dtype: str) -> None:
    assert result(f"x: {dtype}[2];", "op mul(x, 1.0) >> y;", f"{dtype}[2]", x=[1, 0]).tolist() == [1, 0]


@sentence("literal.dtype")
def test_a_literal_is_rounded_to_its_dtype_as_every_number_is() -> None:
    assert result("x: f16;", "op add(x, 0.1) >> y;", "f16", x=0) == np.float16(0.1)


@sentence("literal.lone")
def test_the_result_or_the_op_says_the_dtype_where_no_operand_does() -> None:
    keep = [True, False]
    assert result("c: bool[2];", "op where(c, 1, 0.5) >> y;", "f16[2]", c=keep).tolist() == [1, 0.5]
    assert result("c: bool[2];", "op where(c, 7, 3) >> y;", "u4[2]", c=keep).tolist() == [7, 3]
    assert result("x: u2[3];", "op gather(x, 2) >> y;", "u2", x=[0, 1, 3]) == 3
    assert result("x: f32[2];", "op quantize(x, 0.5, 100, to=u8) >> y;", "u8[2]", x=[1, 2]).tolist() == [102, 104]
    assert result("x: i8[2];", "op dequantize(x, 0.5) >> y;", "f32[2]", x=[1, 2]).tolist() == [0.5, 1]
    no_result = "dynamic { c: bool[2]; } block entry { t = op where(c, 1, 0); return t; }"
    assert binding_codes(no_result) == [Code.WRONG_DTYPE]


@sentence("literal.range")
@pytest.mark.parametrize(
    ("dtype", "literal"),
    [
        ("u8", "300"),
        ("u8", "-1"),
        ("i32", "0.5"),
        ("i32", "2147483648"),
        ("i64", "inf"),
        ("u64", "nan"),
        ("f16", "70000"),
        ("f32", "1e39"),
        ("f32", "true"),
        ("bool", "1"),
        ("t1", "0"),
    ],
)
def test_a_literal_that_its_dtype_cannot_hold_is_an_error_where_it_stands(dtype: str, literal: str) -> None:
    for call in (f"op where(c, x, {literal})", f"op where(c, a=x, b={literal})"):
        text = f"dynamic {{ x: {dtype}; c: bool; }} block entry {{ {call} >> x; return; }}"
        with pytest.raises(GraphError) as caught:
            bind(graph(text))
        (problem,) = caught.value.diagnostics
        assert problem.code is Code.VALUE_OUT_OF_RANGE
        assert isinstance(problem.span, Span)
        assert text[problem.span.start : problem.span.end] == literal


@sentence("literal.only")
def test_an_op_of_literals_alone_has_no_dtype() -> None:
    assert binding_codes("volatile { y: f32; } block entry { op add(1.0, 2.0) >> y; return; }") == [Code.WRONG_DTYPE]


SET = """
volatile { s: f64; y: i8[3]; } persistent { n: i32; K(t): f32 @table; flag: bool; }
block entry { NODE return; }"""


@sentence("literal.set")
def test_literals_are_given_to_scalars() -> None:
    nodes = "transfer 0.1 >> s; transfer -3 >> y[1]; cache.write 7 >> n; cache.write true >> flag;"
    nodes += "cache.write 2.5 >> K[n-6];"
    done = after_step(SET.replace("NODE", nodes))
    assert (done.fetch("s"), done.fetch("n"), bool(done.fetch("flag"))) == (0.1, 7, True)
    assert done.fetch("y").tolist() == [0, -3, 0]
    assert done.fetch("K").tolist() == [0, 2.5]


@sentence("literal.set")
@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("transfer 0 >> y;", Code.RESULT_TYPE),
        ("cache.write 0.5 >> n;", Code.VALUE_OUT_OF_RANGE),
        ("cache.write 1 >> flag;", Code.VALUE_OUT_OF_RANGE),
    ],
)
def test_a_literal_fits_the_scalar_that_gets_it(node: str, code: Code) -> None:
    assert binding_codes(SET.replace("NODE", node)) == [code]


# --- loop indices -----------------------------------------------------------------------------------------------------

LOOPS = """
dynamic { x: i64[2]; f: f32; l: i64; } volatile { y: i64[2]; s: f32; }
block entry { loop a (i in 1..4) { NODES } return y, s; }"""


@sentence("loop.operand")
@pytest.mark.parametrize(
    ("nodes", "y", "s"),
    [
        ("op add(x, i) >> y;", [8, 9], 0),
        ("op add(a=y, b=i) >> y;", [6, 6], 0),
        ("op cast(i, to=f32) >> f; op add(f, s) >> s;", [0, 0], 6),
        ("transfer i >> y[i%2];", [2, 3], 0),
        ("loop b (j in i..4) { op mul(i, j) >> y[0]; op add(y[1], j) >> y[1]; }", [9, 14], 0),
        ("op where(true, i, 7) >> y[0];", [3, 0], 0),
        ("loop b (l in 0..1) { op add(y, l) >> y; }", [300, 300], 0),
    ],
)
def test_the_index_of_a_loop_is_an_operand(nodes: str, y: list[int], s: float) -> None:
    done = after_step(LOOPS.replace("NODES", nodes), x=[5, 6], f=0, l=100)
    assert (done.fetch("y").tolist(), done.fetch("s")) == (y, s)


@sentence("loop.operand")
@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ("transfer 1 >> i;", Code.CONSTANT_WRITTEN),
        ("op add(x, i) >> i;", Code.CONSTANT_WRITTEN),
        ("op add(x, i[0]) >> y;", Code.BAD_INDEXING),
        ("op add(x, k) >> y;", Code.UNKNOWN_VARIABLE),
    ],
)
def test_the_index_of_a_loop_is_a_scalar_that_cannot_be_written(nodes: str, code: Code) -> None:
    assert text_codes(LOOPS.replace("NODES", nodes)) == [code]


@sentence("loop.operand")
def test_the_index_of_a_loop_is_an_i64() -> None:
    assert binding_codes(LOOPS.replace("NODES", "op add(f, i) >> f;")) == [Code.WRONG_DTYPE]


@sentence("loop.operand")
def test_an_index_is_no_operand_in_blocks_that_the_loop_runs() -> None:
    text = LOOPS.replace("NODES", "branch other;") + " block other { op add(y, i) >> y; return; }"
    assert text_codes(text) == [Code.UNKNOWN_VARIABLE]


@sentence("loop.operand")
def test_an_index_is_shown_where_a_step_stands() -> None:
    ready = executor(LOOPS.replace("NODES", "op add(x, i) >> y;"))
    ready.insert({"x": [5, 6], "f": 0, "l": 0})
    places = (ready.place for _ in ready.iterate())
    assert [int(place.read("i")) for place in places if place.indices] == [1, 2, 3]
