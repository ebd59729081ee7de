"""Where control flow meets tables, indices and consumers: generated C does what the simulator does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree
from tests.synth.flags import QUICK

from openinfer import ModelLoader
from openinfer.errors import Code, ExecutionError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.synth.program.ir import BindSize, steps_in

COUNTED = "dynamic { x: f32[2]; m: i32; } "
KEPT = "persistent { n: i32; A(i): f32[2] @table @fixed(i=16); } volatile { y: f32[2]; } "


def turns(step: int) -> dict[str, Any]:
    """No turn in the first step, one in the second, more in those that follow."""
    return {"x": np.arange(2, dtype=np.float32) + step + 1, "m": np.int32(step)}


# --- loops that may have no iteration ---------------------------------------------------------------------------------

LOOPS = {
    "index": KEPT + "block entry { cache.increment n; loop q (i in 0..m) { cache.write x >> A[n]; } return; }",
    "bound": KEPT
    + """block entry {
        cache.increment n;
        loop q (i in 0..m) { loop r (j in i..n) { op add(y, x) >> y; } }
        cache.write y >> A[n];
        return y;
    }""",
    "called block": KEPT
    + """block entry { cache.increment n; loop q (i in 0..m) { branch b; } cache.read A[n] >> y; return y; }
    block b { cache.write x >> A[n]; return; }""",
    "block with the loop": KEPT
    + """block entry { branch b; cache.read A[n] >> y; return y; }
    block b { cache.increment n; loop q (i in 0..m) { loop r (j in 0..1) { cache.write x >> A[n+j]; } } return; }""",
    # The value of b lies in the home of n, which the index in the body needs for n's own.
    "another variable in the home": """
    persistent { n: i32; b: i32; A(i): f32[2] @table @fixed(i=16); } volatile { y: i32; z: i32; }
    block entry {
        transfer n >> b;
        cache.increment 2 n;
        loop q (i in 0..m) { op add(b, b) >> y; cache.write x >> A[n]; op add(b, y) >> z; }
        return y, z;
    }""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_written_before_a_loop_does_not_depend_on_its_iterations(name: str) -> None:
    agree(COUNTED + LOOPS[name], None, turns, steps=4, flags=QUICK)


# --- tables read where they lie ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "kind"), [("A[0]", "B[1]", "f32[2]"), ("A[0..2]", "P[1..3, ]", "f32[2, 2]")]
)
def test_what_is_read_from_a_table_is_written_elsewhere(source: str, target: str, kind: str) -> None:
    text = f"""
    persistent {{ A(i): f32[2] @table @fixed(i=4); B(i): f32[2] @table @fixed(i=4); P: f32[3, 2]; }}
    volatile {{ w: {kind}; y: {kind}; }}
    block entry {{
        cache.write x >> A[1];
        cache.read {source} >> w;
        cache.write w >> {target};
        op add(w, w) >> y;
        transfer {source} >> {target};
        loop q (i in 0..m) {{ cache.read {source} >> w; cache.write w >> {target}; cache.write x >> A[i]; }}
        return y;
    }}"""
    agree(COUNTED + text, None, turns, steps=3, flags=QUICK)


# --- consumers --------------------------------------------------------------------------------------------------------

CONSUMERS = {
    "two that run blocks": """
    block entry { branch i; yield p; await p; op add(p, y) >> z; return y, z; }
    block i { op add(p, x) >> p; return; }
    block c { await p; branch d; yield p; }
    block d { op add(p, p) >> p; return; }
    block e { await p; branch g; yield p; }
    block g { op add(p, p) >> y; return; }""",
    "one that starts at a later yield": """
    block entry { branch i; yield p; yield q; await p, q; op add(p, y) >> z; return y, z; }
    block i { op add(p, x) >> p; op add(p, x) >> q; return; }
    block c { await p; branch d; yield p; }
    block d { op add(p, p) >> p; return; }
    block e { await p, q; loop l (k in 0..2) { op add(p, q) >> y; op add(q, y) >> q; } yield p, q; }""",
    "a copy of what is yielded": """
    block entry { branch i; transfer p >> y; yield p; op add(y, x) >> z; await p; op add(z, y) >> z; return y, z; }
    block i { op add(p, x) >> p; return; }
    block c { await p; loop l (k in 0..2) { op add(p, p) >> p; } yield p; }""",
    "what entry does not await": """
    block entry { op add(p, x) >> p; yield p; return y; }
    block c { await p; op add(p, p) >> p; yield p; }""",
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_consumers_get_what_was_yielded_and_give_back_what_they_yield(name: str) -> None:
    declared = "dynamic { x: f32[2]; } persistent { p: f32[2]; q: f32[2]; } volatile { y: f32[2]; z: f32[2]; }"
    agree(declared + CONSUMERS[name], None, lambda step: {"x": turns(step)["x"]}, flags=QUICK)


# --- dynamic sizes below their bounds ---------------------------------------------------------------------------------

INFERRED = {
    "loop": ("h = op relu(x); loop r (l in 0..2) { op mean_axis(h, axes=[0]) >> y; op add(h, h) >> h; }", ""),
    "branch": ("h = op relu(x); branch b; op mean_axis(h, axes=[0]) >> y;", "block b { op add(h, h) >> h; return; }"),
    "yield": (
        "h = op relu(x); yield h; await h; op mean_axis(h, axes=[0]) >> y;",
        "block c { await h; loop l (i in 0..2) { op add(h, x) >> h; } yield h; }",
    ),
    "zero-trip loop": (
        "loop r (l in 0..m) { h = op relu(x); } g = op add(h, x); op sum_axis(g, axes=[0]) >> y;",
        "",
    ),
}


@pytest.mark.parametrize("name", INFERRED)
def test_an_inferred_temporary_is_as_large_as_the_sizes_make_it(name: str) -> None:
    body, blocks = INFERRED[name]
    declared = "sizes { T <= 8; } dynamic { x: f32[T, 3]; m: i32; } volatile { y: f32[3]; }"
    text = f"{declared} block entry {{ {body} return y; }} {blocks}"
    agree(text, None, lambda step: {"x": np.ones((2 + step, 3), np.float32), "m": np.int32(step)}, flags=QUICK)


@pytest.mark.parametrize(("one", "other"), [("2*T", "T*2"), ("T+1", "1+T"), ("2*(T+1)", "T*2+2"), ("4*T/2", "T+T")])
def test_extents_that_are_equal_are_so_however_they_are_written(one: str, other: str) -> None:
    """No check of one extent against itself, which compilers refuse; and no needless one."""
    text = f"""
    sizes {{ T <= 6; }} dynamic {{ x: f32[{one}]; }} volatile {{ y: f32[{other}]; z: f32[{one}]; }}
    block entry {{ op relu(x) >> y; h = op add(x, y); loop r (i in 0..2) {{ op add(h, y) >> h; }} op neg(h) >> z;
    return z; }}"""
    module = agree(text, None, lambda step: {"x": np.ones(2 * step + 2, np.float32)}, flags=QUICK)
    steps = module._program.blocks["entry"]
    assert not any(isinstance(step, BindSize) for step in steps_in(steps))


SIZED = """
sizes { T <= 8; } dynamic { x: f32[2]; n: i32; }
persistent { A(i): f32 @table @fixed(i=8) @init(3.0); B(i): f32[2] @table @fixed(i=9); }
volatile { v: f32[T]; w: f32[T]; y: f32[2]; z: f32[T] @init(2.0); s: f32; }
"""
UNBOUND = {
    "operand": "block entry { op sum_axis(v, axes=[0]) >> s; return s; }",
    "operand of what nothing reads": "block entry { op sum_axis(v, axes=[0]) >> s; return y; }",
    "copy": "block entry { transfer v >> w; return y; }",
    "bound": "block entry { loop l (i in 0..T) { op add(y, x) >> y; } return y; }",
    "index": "block entry { cache.write x >> B[T]; return y; }",
    "slice": "block entry { cache.read A[0..T] >> w; return y; }",
    "yield": "block entry { yield v; await v; return y; } block c { await v; op add(y, x) >> y; yield v; }",
    "loop around what binds it": """
    block entry { loop l (i in 0..n) { cache.read A[0..n] >> v; } op sum_axis(z, axes=[0]) >> s; return s; }""",
}
LATER = {
    "loop": "block entry { loop l (i in 0..2) { cache.read A[0..n] >> v; op add(z, v) >> z; } return z; }",
    "branch": """block entry { branch b; op add(z, z) >> z; return z; }
    block b { cache.read A[0..n] >> v; op add(z, v) >> z; return; }""",
}


@pytest.mark.parametrize("name", UNBOUND)
def test_a_dynamic_size_without_a_value_fails_the_step(name: str) -> None:
    module = agree(SIZED + UNBOUND[name], None, lambda step: {"x": turns(step)["x"], "n": np.int32(step)}, flags=QUICK)
    module.insert(x=turns(0)["x"], n=np.int32(0))
    with pytest.raises(ExecutionError) as caught:
        module.run_step()
    assert caught.value.code is Code.SIZE_CONFLICT


@pytest.mark.parametrize("name", LATER)
def test_a_variable_has_its_initial_value_when_its_size_is_bound_later(name: str) -> None:
    agree(SIZED + LATER[name], None, lambda step: {"x": turns(step)["x"], "n": np.int32(step)}, flags=QUICK)


@pytest.mark.parametrize(("extents", "sizes"), [("T, 4", (0, 0)), ("U, 4", (1, 3)), ("U, 4", (1, 0))])
def test_a_size_that_is_at_most_one_is_stretched_only_where_it_is_one(extents: str, sizes: tuple[int, int]) -> None:
    text = f"""
    sizes {{ T <= 1; U <= 5; }} dynamic {{ x: f32[T, 4]; u: f32[{extents}]; }}
    constant {{ k: f32[4] @init(3.0); }} volatile {{ y: f32[{extents}]; }}
    block entry {{ t = op add(x, k); loop r (i in 0..2) {{ op neg(t) >> t; }} op add(t, u) >> y; return y, t; }}"""
    shape = {"T": sizes[0], "U": sizes[1]}[extents[0]], 4
    agree(
        text,
        None,
        lambda _step: {"x": np.ones((sizes[0], 4), np.float32), "u": np.ones(shape, np.float32)},
        steps=1,
        flags=QUICK,
    )


def test_a_slice_may_have_another_bound_than_the_variable_that_takes_it() -> None:
    text = """sizes { T <= 5; } dynamic { n: i32; x: f32; } persistent { A(i): f32 @table @fixed(i=9); p: u8[4]; }
    volatile { v: f32[T]; }
    block entry {
        assign t: u8[1];
        op neg(A[0..n]) >> v;
        loop l (j in 1..n) { op neg(p[(j - j) % 4..((j - j) % 4) + 1]) >> t; }
        cache.write x >> A[n];
        return v, t;
    }"""
    agree(text, None, lambda step: {"n": np.int32(2 * step), "x": np.float32(step)}, steps=4, flags=QUICK)


@pytest.mark.parametrize("dtype", ["u4", "u8", "u32", "i2"])
def test_an_unsigned_index_is_not_asked_whether_it_is_negative(dtype: str, tmp_path: Path) -> None:
    save_file(tmp_path / "w.oinf", {f"W.{number}": np.full(2, number, np.int16) for number in range(3)})
    text = f"""volatile {{ y: i16[2]; }} constant {{ W(l): i16[2] @pattern("W.{{l}}"); }} persistent {{ n: {dtype}; }}
    block entry {{ op add(y, W[n]) >> y; op add(y, W[n % 3]) >> y; cache.increment n; return y; }}"""
    agree(text, ModelLoader.open(tmp_path / "w.oinf"), steps=5, flags=QUICK)


FORKED = {
    "entry reads before it awaits": """
    block entry { yield x; op sum_axis(z, axes=[0]) >> s; await x; return s; }
    block k { await x; cache.read A[0..n] >> v; yield x; }""",
    "entry reads after it has awaited": """
    block entry { yield x; await x; op sum_axis(z, axes=[0]) >> s; return s; }
    block k { await x; cache.read A[0..n] >> v; yield x; }""",
    "two consumers that disagree": """
    block entry { yield x; return y; }
    block k { await x; cache.read A[0..n] >> v; yield x; }
    block l { await x; cache.read A[0..n+1] >> w; yield x; }""",
    "entry and a consumer that agree": """
    block entry { yield x; cache.read A[0..n] >> w; await x; op add(w, v) >> z; return z; }
    block k { await x; cache.read A[0..n] >> v; yield x; }""",
}


@pytest.mark.parametrize("name", FORKED)
def test_what_a_consumer_binds_is_its_own_until_entry_awaits_it(name: str) -> None:
    agree(SIZED + FORKED[name], None, lambda step: {"x": turns(step)["x"], "n": np.int32(step)}, flags=QUICK)


QUANTIZED = {
    "another tensor's elements": "transfer w >> v; op matmul(x, v) >> y;",
    "elements of its own": "op add(v, u) >> v; loop l (i in 0..2) { op matmul(x, v) >> y; transfer w >> v; }",
    "a part": "transfer u >> v; op matmul(x, v[0..2, ]) >> y;",
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_variable_is_quantized_as_its_own_tensor_whatever_is_written_to_it(name: str, tmp_path: Path) -> None:
    data = np.arange(4, dtype=np.int8).reshape(2, 2)
    scaled = {
        key: TensorSpec(data + 1, quant=QuantParams("symmetric", QuantScale.per_tensor(scale)))
        for key, scale in (("w", 0.5), ("v", 0.25))
    }
    save_file(tmp_path / "w.oinf", {**scaled, "u": TensorSpec(data)})
    text = f"""dynamic {{ x: f32[2, 2]; }} constant {{ w: i8[2, 2]; u: i8[2, 2]; }}
    volatile {{ v: i8[2, 2]; y: f32[2, 2]; }} block entry {{ {QUANTIZED[name]} return y; }}"""
    model = ModelLoader.open(tmp_path / "w.oinf")
    agree(text, model, lambda _step: {"x": np.ones((2, 2), np.float32)}, steps=1, flags=QUICK)


# --- constants where values of the step usually stand -----------------------------------------------------------------


def test_a_counter_goes_on_from_a_constant_that_it_was_given(tmp_path: Path) -> None:
    save_file(tmp_path / "c.oinf", {"c": np.array(5, np.int32), "k": np.array(7, np.int32)})
    text = """
    dynamic { x: f32[2]; m: i32; } constant { c: i32; } persistent { n: i32; k: i32 @ref("k"); }
    block entry {
        transfer c >> n; cache.increment n; cache.decrement n+m n;
        cache.reset k; cache.increment m k;
        return;
    }"""
    with ModelLoader.open(tmp_path / "c.oinf") as model:
        agree(text, model, turns, flags=QUICK)


def test_a_constant_is_written_into_a_part_of_the_state_and_taken_back() -> None:
    text = """
    dynamic { x: f32[2]; m: i32; } volatile { zeros: i1[2]; } persistent { p: i1[2] @init(-1); }
    block entry { op neg(zeros) >> zeros; loop q (i in 0..m) { cache.write zeros >> p[..]; } return; }"""
    agree(text, None, turns, flags=QUICK)


def test_a_variable_of_zeros_does_not_share_the_flags_of_written_entries(tmp_path: Path) -> None:
    save_file(tmp_path / "w.oinf", {f"W.{entry}": np.full(2, entry, np.int32) for entry in range(2)})
    text = """
    dynamic { x: f32[2]; m: i32; } volatile { y: i32[2]; z: u8[2]; W(l): i32[2] @pattern("W.{l}"); }
    block entry { transfer y >> W[m % 2]; return z; }"""
    with ModelLoader.open(tmp_path / "w.oinf") as model:
        agree(text, model, turns, flags=QUICK)


def test_truth_values_are_compared_with_numbers_that_they_cannot_be() -> None:
    text = """
    dynamic { x: f32[2]; m: i32; } volatile { a: bool; b: bool; }
    block entry {
        s = op lt(m, 1); t = op cast(s, to=i64);
        op le(t, 8) >> a; op eq(t, -1) >> b;
        c = op lt(t, 1); return a, b, c;
    }"""
    agree(text, None, turns, flags=QUICK)
