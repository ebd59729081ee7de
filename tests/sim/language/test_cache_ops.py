"""``cache.read``, ``cache.write``, ``cache.increment``, ``cache.decrement``, ``cache.reset``."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, step_error, text_codes

from openinfer.errors import Code

GRID = """dynamic { x: i32; } persistent { n: i32; G(i, j): i32 @table @init(-1); }
    block entry {
        loop a (i in 0..2) { loop b (j in 0..3) { cache.increment n; cache.write n >> G[i, j]; } }
        %s return; }"""


# --- read and write ---------------------------------------------------------------------------------------------------


@sentence("cache.read", "cache.write")
def test_plain_persistent_variables_are_read_and_written_too() -> None:
    text = """dynamic { x: f16[2]; } persistent { p: f16[2] @init(3.0); step: i32 @init(4); }
        block entry { assign before: f16[2]; assign s: i32;
            cache.read p >> before; cache.write x >> p; cache.read step >> s; return before, s; }"""
    ready = after_step(text, x=[1.0, 2.0])
    assert ready.fetch("before").tolist() == [3.0, 3.0]
    assert ready.fetch("s") == 4
    assert step(ready, x=[5.0, 6.0]).fetch("before").tolist() == [1.0, 2.0]


@sentence("cache.write")
def test_a_write_is_seen_by_the_next_read_of_the_same_step_and_of_the_next() -> None:
    text = """dynamic { x: i32; } persistent { K(i): i32 @table; } volatile { before: i32; after: i32; }
        block entry { cache.read K[0] >> before; cache.write x >> K[0]; cache.read K[0] >> after; return; }"""
    ready = after_step(text, x=5)
    assert (ready.fetch("before"), ready.fetch("after")) == (0, 5)
    step(ready, x=6)
    assert (ready.fetch("before"), ready.fetch("after")) == (5, 6)


@sentence("cache.read")
def test_a_value_that_was_read_does_not_change_when_the_entry_is_written() -> None:
    text = """dynamic { x: i32[2]; } persistent { K(i): i32[2] @table; } sizes { T <= 9; }
        block entry { assign one: i32[2]; assign all: i32[T, 2];
            cache.write x >> K[0]; cache.read K[0] >> one; cache.read K[] >> all;
            op neg(x) >> x; cache.write x >> K[0]; return one, all; }"""
    ready = after_step(text, x=[1, 2])
    assert ready.fetch("one").tolist() == [1, 2]
    assert ready.fetch("all").tolist() == [[1, 2]]


@sentence("cache.write")
def test_a_value_that_was_written_does_not_change_with_its_variable() -> None:
    text = """dynamic { x: i32[2]; } persistent { K(i): i32[2] @table; }
        block entry { cache.write x >> K[0]; op neg(x) >> x; return; }"""
    assert after_step(text, x=[1, 2]).fetch("K").tolist() == [[1, 2]]


@sentence("cache.targets")
@pytest.mark.parametrize(
    "node",
    ["cache.read v >> t;", "cache.write t >> v;", "cache.reset v;", "cache.increment v;", "cache.read t >> v;"],
)
def test_cache_operations_work_on_persistent_memory_only(node: str) -> None:
    text = f"volatile {{ v: i32; }} block entry {{ assign t: i32; {node} return; }}"
    assert text_codes(text) == [Code.BAD_CACHE_TARGET]


@sentence("cache.targets")
def test_types_must_agree_exactly() -> None:
    text = "dynamic {{ x: {0}; }} persistent {{ p: f16[2]; }} block entry {{ cache.write x >> p; return; }}"
    for wrong in ("f32[2]", "f16[3]", "f16[2, 1]"):
        assert binding_codes(text.format(wrong)) == [Code.RESULT_TYPE]


# --- increment and decrement ------------------------------------------------------------------------------------------


@sentence("cache.count")
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("cache.increment n;", 11),
        ("cache.increment 5 n;", 15),
        ("cache.decrement n;", 9),
        ("cache.decrement 2 n;", 8),
        ("cache.increment 0 n;", 10),
        ("cache.increment 0x10 n; cache.decrement 1_0 n;", 16),
    ],
)
def test_counters_move_by_one_or_by_an_amount(nodes: str, expected: int) -> None:
    ready = executor(f"persistent {{ n: i32 @init(10); }} block entry {{ {nodes} return n; }}")
    ready.run_step()
    assert ready.fetch("n") == expected


@sentence("cache.count")
@pytest.mark.parametrize(
    ("dtype", "start", "node", "expected"),
    [
        ("i32", 2**31 - 1, "cache.increment n;", -(2**31)),
        ("i32", -(2**31), "cache.decrement n;", 2**31 - 1),
        ("u8", 250, "cache.increment 10 n;", 4),
        ("u8", 0, "cache.decrement n;", 255),
        ("i4", 7, "cache.increment n;", -8),
        ("u2", 3, "cache.increment n;", 0),
        ("i1", 0, "cache.increment n;", -1),
        ("u64", 2**64 - 1, "cache.increment 3 n;", 2),
        ("i8", 0, "cache.increment 1000 n;", -24),
    ],
)
def test_counters_wrap_at_their_own_width(dtype: str, start: int, node: str, expected: int) -> None:
    ready = executor(f"persistent {{ n: {dtype} @init({start}); }} block entry {{ {node} return n; }}")
    ready.run_step()
    assert int(ready.fetch("n")) == expected


@sentence("cache.count")
@pytest.mark.parametrize("declared", ["n: f32", "n: i32[1]", "n: bool", "n(i): i32 @table"])
def test_only_integer_persistent_scalars_are_counted(declared: str) -> None:
    text = f"persistent {{ {declared}; }} block entry {{ cache.increment n; return; }}"
    assert text_codes(text) == [Code.BAD_CACHE_TARGET]


@sentence("cache.count")
def test_a_counter_moves_the_index_that_uses_it() -> None:
    text = """dynamic { x: i32; } persistent { step: u8; K(t): i32 @table; }
        block entry { cache.write x >> K[step]; cache.increment 2 step; cache.write x >> K[step]; return; }"""
    assert after_step(text, x=7).fetch("K").tolist() == [7, 0, 7]


COUNTED = """
sizes { T <= 8; } dynamic { x: f32[T]; by: i8; }
persistent { n: u8 @init(10); m: i32 @init(3); } block entry { NODES return n; }"""


@sentence("cache.count-by")
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("cache.increment m n;", 13),
        ("cache.increment 2*m+1 n;", 17),
        ("cache.decrement m n;", 7),
        ("cache.increment by n;", 8),
        ("cache.decrement by*by n;", 6),
        ("cache.increment T n;", 15),
        ("cache.increment T/2-m%2 n;", 11),
        ("cache.increment n n;", 20),
        ("cache.increment 100*m n;", 54),
        ("cache.decrement 100*m n;", 222),
        ("cache.increment -3 n;", 7),
        ("loop a (i in 0..4) { loop b (j in i..4) { cache.increment i*j n; } }", 35),
    ],
)
def test_counters_move_by_expressions(nodes: str, expected: int) -> None:
    done = after_step(COUNTED.replace("NODES", nodes), x=np.zeros(5, np.float32), by=-2)
    assert int(done.fetch("n")) == expected


@sentence("cache.count-by")
@pytest.mark.parametrize("name", ["x", "i"])
def test_what_counters_move_by_is_an_integer(name: str) -> None:
    text = COUNTED.replace("NODES", f"cache.increment {name}+1 n;")
    codes = text_codes(text) if name == "x" else binding_codes(text)
    assert codes == [Code.BAD_INDEXING if name == "x" else Code.UNKNOWN_SIZE]


# --- reset ------------------------------------------------------------------------------------------------------------


@sentence("cache.reset")
@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("cache.reset G[1, 0];", [[1, 2, 3], [-1, 5, 6]]),
        ("cache.reset G[0];", [[-1, -1, -1], [4, 5, 6]]),
        ("cache.reset G[1];", [[1, 2, 3], [-1, -1, -1]]),
        ("cache.reset G[0..2, 1];", [[1, -1, 3], [4, -1, 6]]),
        ("cache.reset G[1, -2..];", [[1, 2, 3], [4, -1, -1]]),
        ("cache.reset G[7];", [[1, 2, 3], [4, 5, 6]]),
        ("cache.reset G[0, 9];", [[1, 2, 3], [4, 5, 6]]),
        ("cache.reset G[x];", [[1, 2, 3], [-1, -1, -1]]),
    ],
)
def test_a_reset_puts_back_an_entry_or_everything_under_a_prefix(reset: str, expected: Any) -> None:
    assert after_step(GRID % reset, x=1).fetch("G").tolist() == expected


@sentence("cache.reset-table")
@pytest.mark.parametrize("reset", ["cache.reset G;", "cache.reset G[];"])
def test_a_reset_growable_table_has_extent_zero(reset: str) -> None:
    ready = after_step(GRID % reset, x=1)
    assert ready.fetch("G").shape == (0, 0)
    after = GRID % f"{reset} cache.write x >> G[0, 1];"
    assert after_step(after, x=9).fetch("G").tolist() == [[-1, 9]]


@sentence("cache.reset")
def test_a_reset_puts_a_plain_variable_back_to_its_initial_value(make_model: MakeModel) -> None:
    text = """persistent { n: i32 @init(5); a: f32[2]; z: f32[2]; }
        block entry { %s cache.increment n; op exp(a) >> a; op exp(z) >> z; return; }"""
    resets = "cache.reset n; cache.reset a; cache.reset z;"
    model = make_model({"a": floats(0, 0)})
    ready = executor(text % resets, model)
    for _ in range(3):
        ready.run_step()
        assert (ready.fetch("n"), ready.fetch("a").tolist(), ready.fetch("z").tolist()) == (6, [1, 1], [1, 1])


@sentence("cache.reset")
def test_a_reset_of_a_part_of_a_plain_variable_leaves_the_rest() -> None:
    text = """dynamic { x: i32[3]; } persistent { p: i32[3] @init(-1); }
        block entry { cache.write x >> p; cache.reset p[1]; return; }"""
    assert after_step(text, x=[1, 2, 3]).fetch("p").tolist() == [1, -1, 3]


@sentence("cache.reset")
def test_a_reset_outside_a_fixed_bound_is_an_error() -> None:
    text = """dynamic { i: i32; } persistent { K(i): i32 @table @fixed(i=3); }
        block entry { cache.reset K[i]; return; }"""
    after_step(text, i=2)
    assert step_error(executor(text), i=3).code is Code.INDEX_OUT_OF_RANGE
    assert step_error(executor(text), i=-1).code is Code.NEGATIVE_INDEX


@sentence("cache.reset-matrix")
def test_a_reset_matrix_has_its_declared_shape_again() -> None:
    text = """dynamic { x: i32[1, 2]; } persistent { M(r, c): i32[1, 2] @auto_dim(r, c) @init(-1); }
        block entry { cache.write x >> M[0..1, ]; cache.write x >> M[2..3, ]; %s return; }"""
    assert after_step(text % "cache.reset M;", x=[[1, 2]]).fetch("M").tolist() == [[-1, -1]]
    assert after_step(text % "cache.reset M[2];", x=[[1, 2]]).fetch("M").tolist() == [[1, 2], [-1, -1], [-1, -1]]


@sentence("cache.reset-matrix")
def test_a_reset_of_a_table_of_matrices_resets_those_under_the_prefix() -> None:
    text = """dynamic { x: i32[1, 1]; } persistent { C(l, r, c): i32[1, 1] @table @auto_dim(r, c) @init(-1); }
        block entry { loop a (l in 0..2) { cache.write x >> C[l, 1..2, ]; } %s return; }"""
    for reset, expected in (
        ("", [[[-1], [7]], [[-1], [7]]]),
        ("cache.reset C[0];", [[[-1], [-1]], [[-1], [7]]]),
        ("cache.reset C[1, 1];", [[[-1], [7]], [[-1], [-1]]]),
        ("cache.reset C;", []),
    ):
        assert after_step(text % reset, x=[[7]]).fetch("C").tolist() == expected
