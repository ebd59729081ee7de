"""Parts of tables that are read where they lie: no copy where none is needed, and one wherever the table changes."""

import re

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.flags import USUAL

from openinfer import Simulator, graph

HEAD = """
sizes {{ T <= 6; }}
dynamic {{ x: f32[2]; c: bool; }}
volatile {{ y: f32[2]; z: f32[T, 2]; w: f32[2]; }}
persistent {{ n: i32; K(l, t): f32[2] @table @init(0.5) @fixed(l=3, t=6); B(t): i4[2] @table @fixed(t=6); }}
block entry {{ {body} cache.increment n; return y{more}; }}
{blocks}
"""


def graph_of(body: str, more: str = "", blocks: str = "") -> str:
    return HEAD.format(body=body, more=more, blocks=blocks)


def copies(text: str) -> int:
    return len(re.findall(r"oi_table_read\(&grid", planned(text).project.code()["src/net.c"]))


def inputs(step: int) -> dict[str, object]:
    return {"x": np.array([step + 1, -step], np.float32), "c": step % 2 == 0}


IN_PLACE = [
    "cache.write x >> K[1, n]; assign p: f32[T, 2]; cache.read K[1, 0..n+1] >> p; op sum_axis(p, axes=[0]) >> y;",
    "cache.read K[0, n] >> w; op add(w, x) >> y; cache.write y >> K[0, n];",
    """loop layers (l in 0..3) {
        cache.write x >> K[l, n];
        assign p: f32[T, 2];
        cache.read K[l, 0..n+1] >> p;
        op sum_axis(p, axes=[0]) >> w;
        op add(y, w) >> y;
    }""",
    "op sum_axis(K[2, n..n+2], axes=[0]) >> y; cache.write y >> K[2, n];",
]


@pytest.mark.parametrize("body", IN_PLACE)
def test_what_a_table_holds_is_read_where_it_lies(body: str) -> None:
    text = graph_of(body)
    assert copies(text) == 0
    agree(text, inputs=inputs, steps=7)


COPIED = [
    # The table changes before the value is used.
    ("cache.read K[0, n] >> w; cache.write x >> K[0, n]; op neg(w) >> y;", "", ""),
    ("cache.read K[0, n] >> w; cache.reset K; op neg(w) >> y;", "", ""),
    # In the next turn of the loop, the table has changed.
    ("cache.read K[0, n] >> w; loop a (i in 0..2) { op add(w, y) >> y; cache.write y >> K[0, n]; }", "", ""),
    # A block changes it.
    (
        "cache.read K[0, n] >> w; branch c one two; op neg(w) >> y;",
        "",
        "block one { cache.write x >> K[0, n]; return; } block two { return; }",
    ),
    # The value is an output, which the caller may read after the step.
    ("cache.read K[0, 0..n+1] >> z; transfer x >> y; cache.write x >> K[0, n];", ", z", ""),
    # It goes back into the table, elsewhere.
    ("cache.read K[0, n] >> w; cache.write w >> K[1, n]; transfer w >> y; cache.write x >> K[0, n];", "", ""),
    # The cells do not lie one after the other.
    ("assign p: f32[3, 2]; cache.read K[0..3, n] >> p; op sum_axis(p, axes=[0]) >> y;", "", ""),
]


@pytest.mark.parametrize(("body", "more", "blocks"), COPIED)
def test_a_copy_is_made_where_the_table_changes_first(body: str, more: str, blocks: str) -> None:
    text = graph_of(body, more, blocks)
    assert copies(text) > 0
    agree(text, inputs=inputs, steps=6)


def test_a_kernel_does_not_write_over_a_part_that_it_reads() -> None:
    text = graph_of("cache.read K[0, n] >> w; op relu(w) >> w; op neg(w) >> w; transfer w >> y;")
    agree(text, inputs=inputs, steps=4)


def test_elements_that_share_bytes_are_copied() -> None:
    body = "assign b: i4[2]; assign f: f32[2]; cache.read B[n] >> b; op cast(b, to=f32) >> y;"
    assert copies(graph_of(body)) == 1
    agree(graph_of(body), inputs=inputs)


def test_nothing_is_fused_across_a_change_of_its_operand() -> None:
    """A read between two kernels does not keep them apart; what is read there is not what they compute."""
    body = "assign h: f32[2]; op neg(x) >> h; cache.read K[0, n] >> w; op add(h, w) >> y; cache.write y >> K[0, n];"
    plan = planned(graph_of(body))
    assert any(one.is_fused for one in plan.ledger)
    agree(graph_of(body), inputs=inputs)


@pytest.mark.parametrize("read", ["cache.read K[0, n+3] >> w;", "assign p: f32[1]; cache.read v[n..n+1] >> p;"])
def test_of_a_read_that_nobody_needs_only_the_check_is_left(read: str) -> None:
    text = graph_of(read + " transfer x >> y;").replace("n: i32;", "n: i32; v: f32[5];")
    assert copies(text) == 0
    assert "oi_tensor_part" not in planned(text).project.code()["src/net.c"]
    agree(text, inputs=inputs, steps=8)


CACHED = """
sizes { T <= 9; }
dynamic { q: f32[4, 1, 8]; k: f32[2, 8]; }
volatile { y: f32[4, 1, 8]; }
persistent { n: i32; K(t): f32[2, 8] @table @fixed(t=9); }
block entry {
    assign past: f32[T, 2, 8];
    assign keys: f32[2, T, 8];
    cache.write k >> K[n];
    cache.read K[0..n+1] >> past;
    op transpose(past, perm=[1, 0, 2]) >> keys;
    op sdpa(q, keys, keys) >> y;
    cache.increment n;
    return y;
}
"""


def test_attention_over_a_table_copies_and_turns_nothing() -> None:
    plan = planned(CACHED)
    assert copies(CACHED) == 0
    assert next(kernel.name for kernel in plan.project.kernels.used.values()).endswith("_sdpa")
    assert plan.memory.peak < 9 * 2 * 8 * 4 + 1024
    rng = np.random.default_rng(0)
    module = plan.build(flags=USUAL)
    executor = Simulator().make_executor(graph(CACHED))
    for _ in range(9):
        given = {"q": rng.normal(size=(4, 1, 8)).astype(np.float32), "k": rng.normal(size=(2, 8)).astype(np.float32)}
        for one in (module, executor):
            one.insert(given)
            one.run_step()
        np.testing.assert_allclose(module.fetch("y"), executor.fetch("y"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("perm", [[0, 2, 1, 3], [1, 0, 2, 3], [2, 1, 0, 3], [0, 1, 3, 2], [3, 2, 1, 0]])
@pytest.mark.parametrize("product", ["matmul(t, w)", "matmul(u, t)", "matmul(t, t, transpose_b=true)"])
def test_products_of_tensors_that_lie_elsewhere(perm: list[int], product: str) -> None:
    """Small whole numbers, so that the order of sums does not matter."""
    text = f"""dynamic {{ x: f32[5, 5, 5, 5]; w: f32[5, 3]; u: f32[4, 5]; }}
    block entry {{ op transpose(x, perm={perm}) >> t; op {product} >> y; return y; }}"""
    text = text.replace("op transpose", "assign t: f32[5, 5, 5, 5]; op transpose")
    shape = {"matmul(t, w)": "5, 5, 5, 3", "matmul(u, t)": "5, 5, 4, 5"}.get(product, "5, 5, 5, 5")
    text = text.replace("block entry", f"volatile {{ y: f32[{shape}]; }} block entry")
    rng = np.random.default_rng(1)
    given = {
        name: rng.integers(-4, 5, size).astype(np.float32)
        for name, size in (("x", (5, 5, 5, 5)), ("w", (5, 3)), ("u", (4, 5)))
    }
    agree(text, inputs=lambda _step: given, steps=1)
