"""Small graphs that a wrong synthesizer computes wrongly: one for each kind of mistake, quick to compile."""

from typing import Any

import numpy as np
import pytest
from tests.differential.batches import IN_THREADS
from tests.differential.building import Toolchain, library_of, watched
from tests.synth.both_ways import agree, planned
from tests.synth.flags import QUICK

from openinfer import ModelLoader
from openinfer.dtypes import DTYPES
from openinfer.oinf import TensorSpec, save_file
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint

RNG = np.random.default_rng(9)


def _whole_numbers(*shape: int) -> Any:
    """Floats whose sums are exact in any order; the same ones for each shape."""
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(np.float32)


def _model(folder: Any, **tensors: Any) -> ModelLoader:
    save_file(folder / "m.oinf", tensors)
    return ModelLoader.open(folder / "m.oinf")


@pytest.mark.parametrize("device", ["x86-avx2", "generic"])
def test_tiles_end_where_the_matrix_ends(device: str, tmp_path: Any) -> None:
    text = """dynamic { x: f32[11, 13]; } constant { w: f32[13, 37]; } volatile { y: f32[11, 37]; }
    block entry { op matmul(x, w) >> y; return y; }"""
    model = _model(tmp_path, w=_whole_numbers(13, 37))
    agree(text, model, lambda _: {"x": _whole_numbers(11, 13)}, 1, QUICK, device=device)


def test_rows_of_a_dynamic_size_end_where_they_end(tmp_path: Any) -> None:
    text = """sizes { T <= 19; } dynamic { x: f32[T, 5]; } constant { w: f32[5, 9]; } volatile { y: f32[T, 9]; }
    block entry { op matmul(x, w) >> y; return y; }"""
    model = _model(tmp_path, w=_whole_numbers(5, 9))
    agree(text, model, lambda step: {"x": _whole_numbers((19, 13, 1)[step], 5)}, 3, QUICK, device="x86-avx2")


def test_operands_keep_their_places() -> None:
    text = """dynamic { x: f32[4]; z: f32[4]; } volatile { a: f32[4]; y: f32[4]; }
    block entry { op sub(x, z) >> a; op div(a, z) >> y; return y; }"""
    agree(text, None, lambda _: {"x": _whole_numbers(4), "z": np.arange(1, 5, dtype=np.float32)}, 1, QUICK)


def test_a_value_that_is_read_elsewhere_is_not_overwritten_in_place() -> None:
    text = """dynamic { x: i32[7]; } volatile { a: i32[7]; b: i32[7]; y: i32[7]; z: i32[7]; }
    block entry {
        op neg(x) >> a; barrier; op flip(a, axes=[0]) >> b; op add(a, b) >> y; barrier; op mul(y, y) >> z;
        return z;
    }"""
    agree(text, None, lambda _: {"x": np.arange(7, dtype=np.int32)}, 1, QUICK)


def test_a_value_that_is_needed_later_is_not_overwritten_in_place() -> None:
    text = """dynamic { x: i32[7]; } volatile { a: i32[7]; b: i32[7]; c: i32[7]; y: i32[7]; }
    block entry {
        op neg(x) >> a; barrier; op square(a) >> b; barrier; op add(b, b) >> c; barrier; op sub(c, a) >> y; return y;
    }"""
    agree(text, None, lambda _: {"x": np.arange(7, dtype=np.int32)}, 1, QUICK)


def test_a_result_does_not_lie_where_its_operand_is_still_read() -> None:
    text = """dynamic { x: i32[7]; } volatile { a: i32[7]; y: i32[7]; }
    block entry { op neg(x) >> a; barrier; op flip(a, axes=[0]) >> y; return y; }"""
    agree(text, None, lambda _: {"x": np.arange(7, dtype=np.int32)}, 1, QUICK)


def test_what_the_next_turn_reads_survives_this_one() -> None:
    text = """dynamic { x: i32[64]; } volatile { y: i32[64]; }
    block entry {
        assign a: i32[64]; assign b: i32[64]; assign c: i32[64];
        op neg(x) >> a;
        barrier;
        loop turns (i in 0..3) {
            op add(y, a) >> b; barrier; op mul(b, b) >> c; barrier; op sub(c, b) >> y;
        }
        return y;
    }"""
    agree(text, None, lambda _: {"x": np.arange(64, dtype=np.int32)}, 1, QUICK)


def test_nothing_fuses_across_a_barrier() -> None:
    text = """dynamic { x: f32[4]; } volatile { a: f32[4]; y: f32[4]; }
    block entry { op neg(x) >> a; barrier; op exp(a) >> y; return y; }"""
    plan = planned(text)
    assert [entry.reason for entry in plan.ledger if entry.is_fused] == []
    assert any("barrier" in entry.reason for entry in plan.ledger)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8", "i4"])
def test_every_op_of_a_fused_chain_rounds(dtype: str) -> None:
    kind = f"{dtype}[33]"
    text = f"""dynamic {{ x: {kind}; z: {kind}; }} volatile {{ a: {kind}; b: {kind}; y: {kind}; }}
    block entry {{ op mul(x, z) >> a; op add(a, z) >> b; op mul(b, x) >> y; return y; }}"""
    plan = planned(text)
    assert sum(entry.is_fused for entry in plan.ledger) == 2
    numbers = RNG.integers(-7, 8, (2, 33)) if dtype == "i4" else RNG.uniform(-3, 3, (2, 33)).astype(np.float32)
    x, z = (row.astype(DTYPES[dtype].array) for row in numbers)
    agree(text, None, lambda _: {"x": x, "z": z}, 1, QUICK)


def test_a_fused_reduction_rounds_before_what_follows() -> None:
    text = """dynamic { x: f16[5, 9]; } volatile { a: f16[5]; y: f16[5]; }
    block entry { op max_axis(x, axis=1) >> a; op square(a) >> y; return y; }"""
    x = RNG.normal(size=(5, 9)).astype(np.float16)
    agree(text, None, lambda _: {"x": x}, 1, QUICK)


def test_an_element_of_a_reduction_wraps_before_it_is_reduced() -> None:
    text = """dynamic { x: i4[5, 9]; z: i4[9]; } volatile { a: i4[5, 9]; y: i32[5]; }
    block entry { op mul(x, z) >> a; op sum_axis(a, axis=1, acc=i32) >> y; return y; }"""
    assert sum(entry.is_fused for entry in planned(text).ledger) == 1
    x, z = RNG.integers(-8, 8, (5, 9)).astype(np.int8), RNG.integers(-8, 8, 9).astype(np.int8)
    agree(text, None, lambda _: {"x": x, "z": z}, 1, QUICK)


def test_what_a_step_leaves_behind_is_there_in_the_next_one() -> None:
    text = """dynamic { x: i4[5]; } persistent { p: i4[5] @init(1); n: i16; } volatile { y: i4[5]; }
    block entry { op add(p, x) >> p; cache.increment 3 n; op mul(p, x) >> y; return y; }"""
    agree(text, None, lambda step: {"x": np.array([1, 2, -3, 0, step], np.int8)}, 3, QUICK)


def test_a_table_is_as_long_as_what_was_written() -> None:
    text = """dynamic { x: u2[3]; } persistent { n: i32; K(t): u2[3] @table @fixed(t=9); M(i): u2[1, 3] @auto_dim(i); }
    volatile { r: u2[1, 3]; }
    block entry {
        cache.write x >> K[2 * n]; op reshape(x, shape=[1, 3]) >> r; cache.write r >> M[n + 1..n + 2];
        cache.increment n; return;
    }"""
    module = agree(text, None, lambda step: {"x": np.array([1, 2, step % 4], np.uint8)}, 3, QUICK)
    assert module.fetch("K").shape == (5, 3)
    assert module.fetch("M").shape == (4, 3)


def test_quantized_weights_have_their_zero_points(tmp_path: Any) -> None:
    quant = QuantParams(
        "asymmetric",
        QuantScale(1, np.array([0.5, 2, 1], np.float32)),
        QuantZeroPoint(1, np.array([1, -2, 0], np.int32)),
    )
    weights = TensorSpec(RNG.integers(-8, 8, (5, 3)).astype(np.int8), "i8", quant=quant)
    text = """dynamic { x: f32[2, 5]; } constant { w: i8[5, 3]; } volatile { y: f32[2, 3]; }
    block entry { op matmul(x, w) >> y; return y; }"""
    agree(text, _model(tmp_path, w=weights), lambda _: {"x": _whole_numbers(2, 5)}, 1, QUICK)


def test_threads_together_do_everything_once() -> None:
    text = """dynamic { x: f32[7, 5]; } volatile { a: f32[5, 7]; s: f32[7]; y: f32[7]; }
    block entry { op transpose(x) >> a; op sum_axis(a, axis=0) >> s; op add(s, s) >> y; return y, a; }"""
    agree(text, None, lambda _: {"x": _whole_numbers(7, 5)}, 2, (*QUICK, "-pthread"), passes=IN_THREADS)


def test_an_op_is_not_shared_with_one_that_sees_other_values() -> None:
    text = """dynamic { x: i32[5]; } persistent { p: i32[5] @init(2); } volatile { a: i32[5]; b: i32[5]; y: i32[5]; }
    block entry { branch w; op mul(p, x) >> a; branch w; op mul(p, x) >> b; op sub(a, b) >> y; return y; }
    block w { op add(p, x) >> p; return; }"""
    agree(text, None, lambda _: {"x": np.arange(5, dtype=np.int32)}, 2, QUICK)


def test_variables_start_at_zero_in_an_arena_of_rubbish(tmp_path: Any) -> None:
    text = """dynamic { x: i32[3]; c: bool; } volatile { y: i32[3]; z: t1[9]; }
    block entry { branch c ok bad; return y, z; } block ok { op add(x, x) >> y; return; } block bad { return; }"""
    project = planned(text).project
    module = watched(project, library_of([project], tmp_path, Toolchain("gcc", ("-O0",))))
    module.module.insert(x=[1, 2, 3], c=False)
    module.run_step()
    assert module.module.fetch("y").tolist() == [0, 0, 0]
    assert module.module.fetch("z").tolist() == [-1] * 9


def test_code_stays_inside_its_memory(tmp_path: Any) -> None:
    """The values fill their memory to the last byte."""
    text = """dynamic { x: u8[64]; } persistent { p: u8[64]; } volatile { y: u8[64]; }
    block entry { op not(x) >> y; op xor(p, y) >> p; return y; }"""
    project = planned(text).project
    module = watched(project, library_of([project], tmp_path, Toolchain("gcc", ("-O0",))))
    for _ in range(2):
        module.module.insert(x=np.arange(64, dtype=np.uint8))
        module.run_step()
    assert module.module.fetch("y").tolist() == (255 - np.arange(64)).tolist()
    assert module.module.fetch("p").tolist() == [0] * 64
