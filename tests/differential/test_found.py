"""Small graphs for what random graphs have found."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree
from tests.synth.flags import FAST, TRAPS

from openinfer import ModelLoader, Simulator, graph
from openinfer.dtypes import DTYPES
from openinfer.errors import Code, ExecutionError
from openinfer.loops.ir import INDEX, Buffer, Const, Kernel, Let, Load, ScalarVar, Store
from openinfer.oinf import save_file
from openinfer.ops import OPS, Call, TensorType, apply, complete, infer
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.target import Passes

COMPILERS = [cc for cc in ("gcc", "clang") if shutil.which(cc)]


def _inputs(**arrays: Any) -> Any:
    return lambda _step: arrays


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("op", ["eq", "lt", "ge"])
def test_an_integer_compared_with_itself_compiles_without_warnings(op: str, cc: str) -> None:
    text = f"""dynamic {{ x: i32[5]; }} volatile {{ a: i32[5]; y: bool[5]; b: bool; z: bool; }}
    block entry {{ op neg(x) >> a; op {op}(a, a) >> y; op all_axis(x) >> b; op xor(b, b) >> z; return y, z; }}"""
    agree(text, inputs=_inputs(x=np.arange(5, dtype=np.int32)), flags=FAST, cc=cc)


@pytest.mark.parametrize("cc", COMPILERS)
def test_a_number_compared_with_itself_compiles_without_warnings(cc: str) -> None:
    text = """dynamic { x: bool; } volatile { v: i64 @init(2); } persistent { y: bool; }
    block entry { yield x; return; } block consumer { await x; branch compare; yield x; }
    block compare { loop l (i in 0..1 % 3) { op le(v, v) >> y; } return; }"""
    agree(text, inputs=_inputs(x=np.array(True)), flags=FAST, cc=cc)


@pytest.mark.parametrize("cc", COMPILERS)
def test_an_element_that_is_the_same_everywhere_leaves_no_unused_names(cc: str) -> None:
    text = """dynamic { x: u16[1, 1, 1, 1]; } volatile { a: u16[1, 1, 1, 1]; y: u16[1, 1, 1, 1]; }
    block entry { op mul(x, x) >> a; op max_pool(a, kernel=[1, 1]) >> y; return y; }"""
    agree(text, inputs=_inputs(x=np.full((1, 1, 1, 1), 3, np.uint16)), flags=FAST, cc=cc)


@pytest.mark.parametrize("cc", COMPILERS)
def test_conditions_have_one_pair_of_parentheses(cc: str) -> None:
    text = """dynamic { x: f64[4]; } volatile { y: f64; }
    block entry { op logsumexp_axis(x) >> y; return y; }"""
    agree(text, inputs=_inputs(x=np.full(4, -np.inf)), flags=FAST, cc=cc)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("dtype", ["i64", "u64", "u8"])
def test_nothing_can_be_gathered_from_an_empty_axis(dtype: str, cc: str) -> None:
    text = f"""sizes {{ T <= 2; }} dynamic {{ x: f32[0, 2]; i: {dtype}[T]; }} volatile {{ y: f32[T, 2]; }}
    block entry {{ op gather(x, i) >> y; return y; }}"""
    sizes = (0, 1, 0)

    def inputs(step: int) -> dict[str, Any]:
        return {"x": np.zeros((0, 2), np.float32), "i": np.zeros(sizes[step], DTYPES[dtype].array)}

    agree(text, inputs=inputs, flags=FAST, cc=cc)


WINDOW = """sizes { T <= 4; } dynamic { x: f32[1, 1, T]; w: f32[1, 1, 2]; } volatile { y: f32[1, 1, T - 1]; }
block entry { op conv1d(x, w) >> y; return y; }"""


def test_a_window_that_does_not_fit_a_dynamic_size_is_refused_by_both() -> None:
    module = Synthesizer().synthesize(None, graph(WINDOW)).build(flags=FAST)
    executor = Simulator().make_executor(graph(WINDOW))
    for size, is_good in ((4, True), (2, True), (1, False), (0, False), (3, True)):
        for one in (module, executor):
            one.reset()
            one.insert(x=np.ones((1, 1, size), np.float32), w=np.ones((1, 1, 2), np.float32))
            if is_good:
                one.run_step()
                assert one.fetch("y").shape == (1, 1, size - 1)
            else:
                with pytest.raises(ExecutionError):
                    one.run_step()


def test_a_variable_that_no_node_writes_may_have_an_impossible_shape() -> None:
    text = """sizes { T <= 4; } dynamic { x: f32[1, 1, T]; c: bool; }
    volatile { w: f32[1, 1, 3] @init(1); y: f32[1, 1, T - 2]; z: f32[1, 1, T]; }
    block entry { branch c ok skip; op neg(x) >> z; return y, z; }
    block ok { op conv1d(x, w) >> y; return; } block skip { return; }"""
    module = Synthesizer().synthesize(None, graph(text)).build(flags=FAST)
    executor = Simulator().make_executor(graph(text))
    for one in (module, executor):
        one.insert(x=np.ones((1, 1, 1), np.float32), c=False)
        one.run_step()
        assert one.fetch("z").tolist() == [[[-1.0]]]
        with pytest.raises(ExecutionError) as caught:
            one.fetch("y")
        assert caught.value.code is Code.BAD_SHAPE
        one.insert(x=np.ones((1, 1, 4), np.float32), c=True)
        one.run_step()
        assert one.fetch("y").tolist() == [[[3.0, 3.0]]]


@pytest.mark.parametrize("dtype", ["u8", "u16", "i8", "u64"])
def test_counters_wrap_whatever_they_count_by(dtype: str) -> None:
    text = (
        f"persistent {{ n: {dtype} @init(3); }} block entry {{ cache.decrement 5 n; cache.increment 300 n; return; }}"
    )
    agree(text, steps=4, flags=FAST)


def test_huge_positions_have_no_exact_angle() -> None:
    """Whatever the angle, lengths are kept; the bound that implementations are held to says how far it may be off."""
    record = OPS["rope"]
    x, positions = np.ones((2, 2), np.float32), np.array([3, 2**62 + 12345])
    types = TensorType(DTYPES["f32"], (2, 2)), TensorType(DTYPES["i64"], (2,))
    call = infer(record, Call(types, complete(record, {})))
    assert record.bound is not None
    near, far = record.bound(call, x.astype(np.float64), positions)
    assert near.max() < 1e-5
    assert far.min() > 1
    turned = apply("rope", x, positions)
    assert np.allclose((turned**2).sum(axis=-1), 2)


def test_long_chains_of_functions_stay_short_in_c() -> None:
    """What an op uses several times has a name; put in as an expression it would grow with every op of a chain."""
    chain = ["op tanh(x) >> a;"] + [f"op {op}(a) >> a;" for op in ("gelu", "mish", "silu", "gelu", "selu", "mish")]
    text = f"""dynamic {{ x: f32[9]; }} volatile {{ a: f32[9]; y: f32; }}
    block entry {{ {" ".join(chain)} op max_axis(a) >> y; return y; }}"""
    plan = Synthesizer(name="net").synthesize(None, graph(text))
    assert sum(entry.is_fused for entry in plan.ledger) >= len(chain) - 1
    assert max(map(len, plan.project.code()["src/kernels.c"].splitlines())) < 20_000
    executor = Simulator().make_executor(graph(text))
    module = plan.build(flags=FAST)
    for one in (executor, module):
        one.insert(x=np.linspace(-3, 3, 9, dtype=np.float32))
        one.run_step()
    assert np.allclose(executor.fetch("y"), module.fetch("y"), rtol=1e-5)


@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_an_exclusive_scan_does_not_overwrite_what_it_reads_next(op: str) -> None:
    text = f"""dynamic {{ x: i32[5]; }} volatile {{ a: i32[5]; y: i32[5]; }}
    block entry {{ op neg(x) >> a; barrier; op {op}(a, axis=0, exclusive=true) >> y; return y; }}"""
    agree(text, inputs=_inputs(x=np.arange(1, 6, dtype=np.int32)), flags=FAST)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("dtype", ["u8", "u16", "u4"])
def test_a_complement_can_be_compared_without_warnings(dtype: str, cc: str) -> None:
    text = f"""dynamic {{ x: {dtype}[5]; b: {dtype}[5]; }} volatile {{ a: {dtype}[5]; y: bool[5]; }}
    block entry {{ op not(x) >> a; op ge(a, b) >> y; return y; }}"""
    agree(text, inputs=_inputs(x=np.arange(5), b=np.full(5, 12)), flags=FAST, cc=cc)


def test_a_name_that_nothing_uses_is_not_printed() -> None:
    x, y = (Buffer(name, DTYPES["f32"], (1,)) for name in "xy")
    first = (Const(0, INDEX),)
    body = (
        Let(ScalarVar("v5"), Const(2, INDEX)),
        Let(ScalarVar("v6"), ScalarVar("v5") + 1),
        Store(y, first, Load(x, first)),
    )
    text = printed(Kernel("k", (x,), (y,), body), "k").text
    assert "v5" not in text
    assert "v6" not in text


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("dtype", ["u8", "u4", "u64", "i8", "i16", "i64"])
def test_comparisons_with_the_ends_of_a_type_compile_without_warnings(dtype: str, cc: str) -> None:
    ends = int(DTYPES[dtype].minimum), int(DTYPES[dtype].maximum)
    uses = [(op, end, pair) for op in ("lt", "le", "gt", "ge", "eq") for end in "pq" for pair in ("x, {}", "{}, x")]
    ops = " ".join(f"op {op}({pair.format(end)}) >> y{at};" for at, (op, end, pair) in enumerate(uses))
    outputs = ", ".join(f"y{at}" for at in range(len(uses)))
    text = f"""dynamic {{ x: {dtype}[3]; }} volatile {{ {outputs.replace(",", ": bool[3];")}: bool[3]; }}
    block entry {{
        assign p: {dtype}[3]; assign q: {dtype}[3];
        op fill(x, value={ends[0]}) >> p; op fill(x, value={ends[1]}) >> q; {ops} return {outputs};
    }}"""
    agree(text, inputs=_inputs(x=np.array([*ends, 3], DTYPES[dtype].array)), flags=(*FAST, "-Wextra"), cc=cc)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("device", ["x86-avx2", "cpu"])
def test_elements_that_share_a_byte_are_all_stored(device: str, cc: str) -> None:
    """Clang 14 turned the loop into vectors that lost some."""
    text = """sizes { T <= 40; } dynamic { x: i4[T, 6]; } volatile { y: i4[T, 6]; }
    block entry { op neg(x) >> y; return y; }"""
    rng = np.random.default_rng(1)
    values = [rng.integers(-8, 8, (rows, 6)).astype(DTYPES["i4"].array) for rows in (17, 40, 3)]
    agree(text, inputs=lambda step: {"x": values[step]}, flags=(*FAST, "-O2"), cc=cc, device=device)


def test_an_extent_may_grow_while_a_size_shrinks() -> None:
    """Four heads of queries share T heads of keys: the fewer of those, the more queries for each."""
    text = """sizes { T <= 4; } dynamic { q: f32[4, 3, 8]; k: f32[T, 5, 8]; v: f32[T, 5, 2]; x: f32[8 / T, 3]; }
    volatile { y: f32[4, 3, 2]; z: f32[4 / T, T, 3, 2]; w: f32[8 / T, 3]; }
    block entry {
        op sdpa(q, k, v) >> y; op reshape(y, shape=[4 / T, T, 3, 2]) >> z; op neg(x) >> w; return y, z, w;
    }"""
    rng = np.random.default_rng(1)
    executor = Simulator().make_executor(graph(text))
    module = Synthesizer(name="net").synthesize(None, graph(text)).build(flags=TRAPS)
    for heads in (4, 1, 2):
        shapes = {"q": (4, 3, 8), "k": (heads, 5, 8), "v": (heads, 5, 2), "x": (8 // heads, 3)}
        inputs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for one in (executor, module):
            one.insert(inputs)
            one.run_step()
        for name in "yzw":
            assert module.fetch(name).shape == executor.fetch(name).shape
            assert np.allclose(module.fetch(name), executor.fetch(name), rtol=1e-5, atol=1e-6)
    for one in (executor, module):
        one.insert(inputs | {"k": np.zeros((3, 5, 8)), "v": np.zeros((3, 5, 2)), "x": np.zeros((2, 3))})
        with pytest.raises(ExecutionError):  # three heads do not divide four
            one.run_step()


@pytest.mark.parametrize("cc", COMPILERS)
def test_lanes_have_no_index_that_nothing_reads(cc: str) -> None:
    text = """sizes { T <= 70; } dynamic { x: f32[T]; } volatile { y: f32; }
    block entry { assign a: f32[T]; op fill(x, value=0) >> a; op prod_axis(a) >> y; return y; }"""
    agree(text, inputs=_inputs(x=np.ones(70, np.float32)), flags=FAST, cc=cc)


def test_as_many_heads_as_heads_even_if_there_are_none() -> None:
    text = """sizes { T <= 3; } dynamic { x: f64[T, T, 4]; } volatile { y: f64[T, T, 4]; }
    block entry { op sdpa(x, x, x) >> y; return y; }"""
    executor = Simulator().make_executor(graph(text))
    module = Synthesizer(name="net").synthesize(None, graph(text)).build(flags=TRAPS)
    for count in (3, 0, 2):
        for one in (executor, module):
            one.insert(x=np.full((count, count, 4), 0.5))
            one.run_step()
        assert np.allclose(module.fetch("y"), executor.fetch("y"))


def test_large_numbers_go_through_gelu_unchanged() -> None:
    text = """dynamic { x: f64[3]; } volatile { y: f64[3]; } block entry { op gelu(x) >> y; return y; }"""
    agree(text, inputs=_inputs(x=np.array([1.7e308, 9e307, -1.7e308])), flags=FAST)


def test_an_infinite_candidate_leaves_a_gate_its_error() -> None:
    """The bound of a GRU: where the candidate is exactly 1, the update still is a rounded sum."""
    types = [TensorType(DTYPES["f64"], shape) for shape in ((2,), (1,), (3, 2), (3, 1), (3,), (3,))]
    record = OPS["gru_cell"]
    call = infer(record, Call(tuple(types), complete(record, {})))
    values = [np.ones(kind.shape) for kind in types]
    values[-1][2] = np.inf
    assert record.bound is not None
    assert np.all(record.bound(call, *values) > 0)


@pytest.mark.parametrize("cc", COMPILERS)
def test_what_is_not_chosen_is_loaded_all_the_same(cc: str) -> None:
    """Otherwise gcc 12 loads under masks, and took that of other elements here."""
    text = """dynamic { a: i32[2, 16]; b: i32[16]; c: bool[2, 16]; d: i32[2, 16]; } volatile { y: i32[2, 16]; }
    block entry { assign m: i32[2, 16]; op mul(a, b) >> m; op where(c, m, d) >> y; return y; }"""
    rng = np.random.default_rng(2)

    def inputs(_step: int) -> dict[str, Any]:
        whole = {name: rng.integers(-9, 9, (2, 16)).astype(np.int32) for name in "ad"}
        return {**whole, "b": rng.integers(-4, 4, 16).astype(np.int32), "c": rng.integers(0, 2, (2, 16)).astype(bool)}

    made = [inputs(step) for step in range(3)]
    agree(text, inputs=lambda step: made[step], flags=(*FAST, "-O3"), cc=cc)


@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("sum_axis", [-3e38, -3e38, np.inf]),
        ("mean_axis", [-3e38, -3e38, np.inf]),
        ("prod_axis", [1e-44, 1e-44, np.inf]),
    ],
)
def test_what_overflows_before_it_meets_an_infinity_is_open(op: str, values: list[float]) -> None:
    """One order of the operands gives an infinity, another one NaN."""
    record = OPS[op]
    call = infer(record, Call((TensorType(DTYPES["f32"], (3,)),), complete(record, {})))
    assert record.bound is not None
    assert np.isinf(record.bound(call, np.array(values)))
    assert record.bound(call, np.array([1.0, 2.0, np.inf])) == 0


@pytest.mark.parametrize("cc", COMPILERS)
def test_places_are_chosen_element_by_element(cc: str) -> None:
    """Gcc 12 took one mask for several vectors where it had unrolled the inner loop."""
    text = """dynamic { x: f64[64, 5]; } volatile { y: f64[64, 5]; }
    block entry { op roll(x, shifts=[1, -2], axes=[1, 0]) >> y; return y; }"""
    agree(text, inputs=_inputs(x=np.arange(320.0).reshape(64, 5)), flags=(*FAST, "-O3"), cc=cc)


def test_compilers_may_not_take_scratch_memory_for_anything_but_memory() -> None:
    """Clang 14 reads memory that is restrict before a loop that fills it: at -O3, in some of a hundred kernels."""
    text = """dynamic { q: f64[2, 4, 3, 8]; k: f64[2, 2, 5, 8]; v: f64[2, 2, 5, 2]; } volatile { y: f64[2, 4, 3, 2]; }
    block entry { op sdpa(q, k, v) >> y; return y; }"""
    kernels = Synthesizer("x86-avx2").synthesize(None, graph(text)).project.code()["src/kernels.c"]
    assert "double *restrict y, double *scores0," in " ".join(kernels.split())


def test_an_infinity_that_was_computed_beforehand_does_not_meet_zeros(tmp_path: Path) -> None:
    """Terms outside of a window are zeros times a weight, where all weights are finite."""
    text = """dynamic { x: f32[1, 4, 9, 9]; } constant { u: f32[8, 4, 3, 3]; v: f32[8, 4, 3, 3]; }
    volatile { w: f32[8, 4, 3, 3]; y: f32[1, 8, 9, 9]; }
    block entry { op max(u, v) >> w; op conv2d(x, w, pads=1) >> y; return y; }"""
    rng = np.random.default_rng(0)
    u, v = rng.integers(-3, 4, (2, 8, 4, 3, 3)).astype(np.float32)
    u[0, 0, 0, 0] = np.inf
    x = rng.integers(1, 4, (1, 4, 9, 9)).astype(np.float32)
    save_file(tmp_path / "m.oinf", {"u": u, "v": v})
    agree(text, ModelLoader.open(tmp_path / "m.oinf"), _inputs(x=x))


@pytest.mark.parametrize("device", ["cpu", "generic"])
def test_what_was_read_from_a_table_into_the_state_is_taken_back(device: str) -> None:
    """A read changes the state, too, where a persistent variable is what it reads into."""
    text = """dynamic { m: i32; } volatile { y: i4[2]; }
    persistent { p: i4[2] @init(1); A(i): i4[2] @table @fixed(i=3); }
    block entry { cache.read A[0] >> p; op neg(A[m]) >> y; return y; }"""
    module = Synthesizer(device).synthesize(None, graph(text)).build(flags=FAST)
    module.insert(m=7)
    with pytest.raises(ExecutionError) as caught:
        module.run_step()
    assert caught.value.code is Code.INDEX_OUT_OF_RANGE
    assert module.fetch("p").tolist() == [1, 1]


def test_a_sort_of_no_rows_uses_the_dynamic_size_it_takes() -> None:
    text = """sizes { T <= 33; } dynamic { x: bool[0, T]; } volatile { y: bool[0, T]; i: i64[0, T]; }
    block entry { op sort(x, axis=1) >> y, i; return y, i; }"""
    agree(text, inputs=_inputs(x=np.zeros((0, 3), bool)), flags=FAST)


@pytest.mark.parametrize("cc", COMPILERS)
def test_a_division_that_always_fails_compiles_without_warnings(cc: str) -> None:
    """Compilers that are asked not to unroll a loop want one that has a second iteration."""
    text = """dynamic { x: i8[T, 3]; } sizes { T <= 2; } volatile { y: i8[T, 3]; }
    block entry { op floor_div(x, y) >> y; return y; }"""
    plan = Synthesizer("x86-avx512").synthesize(None, graph(text))
    source = plan.files()["src/kernels.c"]
    assert isinstance(source, str)
    assert "return 1;" in source
    assert "unroll" not in source
    agree(text, inputs=_inputs(x=np.zeros((0, 3), np.int8)), flags=FAST, cc=cc)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("passes", [Passes(), Passes(simplify=None), Passes(fuse=None)], ids=["all", "plain", "apart"])
def test_a_read_that_only_its_shape_is_needed_of_compiles_without_warnings(passes: Passes, cc: str) -> None:
    text = """dynamic { x: i16[S, 4]; } sizes { S <= 5; } persistent { A(i): i16 @table @fixed(i=5); }
    volatile { t: i16[S, 4]; y: bool[S, 4]; e: i16[0, 3]; z: i16[0, 3]; }
    block entry { op add(A[1], x) >> t; op lt(t, t) >> y; op sub(e, A[2]) >> z; return y, z; }"""
    agree(text, inputs=_inputs(x=np.ones((2, 4), np.int16)), flags=FAST, cc=cc, passes=passes)


def test_a_read_gives_a_temporary_its_sizes_where_no_op_that_infers_it_has_run() -> None:
    text = """sizes { S <= 4; } volatile { v: i16[S, 4] @init(0); } persistent { A(i, j): i16[4] @table; n: i32; }
    block entry { loop l (i in 2..2) { t = op add(v, v); } cache.read A[1, ] >> t; cache.increment n; return; }"""
    agree(text, inputs=lambda _step: {}, flags=FAST)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_reciprocal_root_of_negative_zero_is_negative(dtype: str, cc: str) -> None:
    """clang 14 folds comparisons of 1 / sqrt(x) with zero as if it were never negative."""
    text = f"""dynamic {{ x: {dtype}[16]; }} volatile {{ r: {dtype}[16]; y: {dtype}[16]; }}
    block entry {{ op rsqrt(x) >> r; op sign(r) >> y; return y; }}"""
    values = np.resize(np.array([-0.0, 0.0, 4.0, np.inf]), 16).astype(dtype.replace("f", "float"))
    agree(text, inputs=_inputs(x=values), flags=("-O2", "-fno-math-errno"), cc=cc)
