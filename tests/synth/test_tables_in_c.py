"""Tables, parts of tensors, dynamic sizes and index expressions in generated C, next to the simulator."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.everything import HAS_EVERYTHING
from tests.synth.both_ways import agree, compare, planned
from tests.synth.flags import COMPILERS, FAST, USUAL
from tests.synth.table_graphs import is_valid, part_graph, table_graph

from openinfer import Code, ModelLoader, Simulator, Tensor, bind, graph
from openinfer.errors import ExecutionError, GraphError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file

TABLE_SEEDS = [seed for seed in range(28 if HAS_EVERYTHING else 14) if is_valid(table_graph(seed))]
PART_SEEDS = [seed for seed in range(20 if HAS_EVERYTHING else 10) if is_valid(part_graph(seed))]
LEVELS = [
    (cc, level)
    for place, cc in enumerate(COMPILERS)
    for level in (("-O2", "-O3") if HAS_EVERYTHING else (("-O2", "-O3")[place],))
]
KINDS = ("volatile", "assign", "dynamic")
OTHER_PARTS = [
    (seed, kind)
    for seed in range(21, 33 if HAS_EVERYTHING else 27)
    if is_valid(part_graph(seed, kind := KINDS[seed % 3]))
]


@pytest.mark.parametrize("seed", TABLE_SEEDS)
def test_random_table_accesses_agree(seed: int) -> None:
    agree(table_graph(seed), steps=4)


@pytest.mark.parametrize("seed", PART_SEEDS)
def test_random_parts_of_tensors_agree(seed: int) -> None:
    agree(part_graph(seed), steps=4)


@pytest.mark.parametrize(("seed", "kind"), OTHER_PARTS)
def test_random_parts_of_tensors_of_every_kind_agree(seed: int, kind: str) -> None:
    text = part_graph(seed, kind)
    declared = bind(graph(text)).vars["c0"]
    values = np.random.default_rng(seed).choice(declared.dtype.values or (0, 1), declared.shape)
    agree(text, inputs=lambda _step: {"c0": values.tolist()} if kind == "dynamic" else {}, steps=3)


@pytest.mark.parametrize(("cc", "level"), LEVELS)
def test_every_compiler_accepts_the_table_code_at_every_level(cc: str, level: str) -> None:
    """Warnings are errors, and which there are depends on what is inlined."""
    flags = tuple(level if flag == "-O1" else flag for flag in FAST)
    for seed in (TABLE_SEEDS[3], TABLE_SEEDS[8]):
        agree(table_graph(seed), steps=4, flags=flags, cc=cc)
    agree(part_graph(PART_SEEDS[2]), steps=4, flags=flags, cc=cc)
    agree(GROWING, inputs=lambda step: {"x": np.full(3, step % 5 - 2, np.float32)}, steps=9, flags=flags, cc=cc)


# --- memory that grows ------------------------------------------------------------------------------------------------

GROWING = """
dynamic { x: f32[3]; } volatile { flat: i4[3]; }
persistent { t: i32; K(l, t): f32[3] @table @init(0.5); M(k, i): i4[1, 3] @table @auto_dim(i) @init(-2); }
block entry {
    assign row: i4[1, 3];
    op cast(x, to=i4) >> flat;
    op reshape(flat, shape=[1, 3]) >> row;
    loop layers (l in 0..3) { cache.write x >> K[l, t]; cache.write row >> M[l, t..t+1]; }
    cache.increment t;
    return;
}
"""


def test_tables_without_bounds_grow_on_hosted_devices() -> None:
    module = agree(GROWING, inputs=lambda step: {"x": np.full(3, step % 5 - 2, np.float32)}, steps=40)
    assert module.fetch("K").shape == (3, 40, 3)
    assert module.fetch("M").shape == (3, 40, 3)


def test_tables_without_bounds_need_a_heap() -> None:
    with pytest.raises(GraphError) as caught:
        planned(GROWING, device="generic")
    assert caught.value.code is Code.NOT_SYNTHESIZED
    assert "@fixed" in str(caught.value)


def test_generic_code_has_no_heap() -> None:
    bounded = GROWING.replace("@init(0.5)", "@fixed(l=3, t=9)").replace("@init(-2)", "@fixed(k=3, i=9)")
    files = planned(bounded, device="generic").project.code()
    assert not any("malloc" in text or "stdlib" in text for path, text in files.items() if path.startswith("src"))


def test_states_of_growing_tables_pass_between_simulator_and_code() -> None:
    executor = Simulator().make_executor(graph(GROWING))
    module = planned(GROWING).build(flags=USUAL)
    for step in range(5):
        for one in (executor, module):
            one.insert(x=np.full(3, step, np.float32))
            one.run_step()
    state = executor.save_state()
    assert state is not None
    assert module.save_state() == state
    module.reset()
    assert module.fetch("K").shape == (0, 0, 3)
    module.load_state(state)
    compare(executor, module, outputs=False)
    executor.reset()
    back = module.save_state()
    assert back is not None
    executor.load_state(back)
    compare(executor, module, outputs=False)


# --- values that are kept while their variable changes ----------------------------------------------------------------

KEPT = [
    "block entry { transfer c >> y; transfer x >> c; return y; }",
    "block entry { transfer c >> y; transfer d >> c; transfer y >> d; op add(c, x) >> c; return y; }",
    "block entry { transfer c >> y; loop l (i in 0..3) { op add(c, x) >> c; } return y; }",
    "block entry { transfer c >> y; branch w; return y; } block w { op add(c, x) >> c; return; }",
    """block entry { branch w; transfer c >> z; branch w; return y, z; }
    block w { transfer c >> y; transfer d >> c; op add(y, x) >> d; return; }""",
    """block entry { transfer c >> y; yield x; await x; return y, x; }
    block w { await x; op add(c, x) >> c; op add(x, c) >> x; yield x; }""",
    """block entry {
        loop l (i in 0..3) { transfer c >> y; op add(c, x) >> c; transfer y >> z; transfer c >> y; }
        return y, z;
    }""",
    "block entry { cache.read c[0..1] >> s; transfer s >> c[1..2]; transfer x >> c; return s; }",
]


@pytest.mark.parametrize("blocks", KEPT)
def test_a_value_outlives_what_its_variable_becomes(blocks: str) -> None:
    declarations = """dynamic { x: f32[2]; } volatile { y: f32[2]; z: f32[2]; s: f32[1]; }
    persistent { c: f32[2] @init(1); d: f32[2] @init(2); }"""
    agree(f"{declarations} {blocks}", inputs=lambda step: {"x": np.array([step + 1, step + 2], np.float32)}, steps=3)


# --- index expressions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "big",
        "big+1",
        "big*big",
        "-big-2",
        "0-big-big",
        "big/(one-1)",
        "big%(one-1)",
        "(0-big-1)/(0-one)",
        "huge",
        "one*2",
    ],
)
def test_index_expressions_never_overflow(expression: str) -> None:
    """An index that no table has is an error on both sides; C would trap on undefined arithmetic."""
    agree(
        f"""persistent {{ big: i64 @init(9223372036854775807); huge: u64 @init(18446744073709551615); one: i32 @init(1);
            K(t): f32[2] @table @fixed(t=4) @init(3); }}
        volatile {{ y: f32[2]; }}
        block entry {{ cache.read K[{expression}] >> y; return y; }}""",
        steps=2,
    )


def test_loop_bounds_come_from_variables_and_divide_downwards() -> None:
    agree(
        """persistent { n: i32 @init(-7); total: i32; }
        block entry {
            loop a (i in n/2..n/2+6) { loop b (j in i..3) { cache.increment total; } }
            cache.increment n;
            return;
        }""",
        steps=8,
    )


def test_a_loop_bound_beyond_64_bits_is_an_error_in_c() -> None:
    """The simulator counts on, since its integers have no width."""
    text = """persistent { n: i64 @init(9223372036854775807); total: i32; }
    block entry { loop a (i in n..n+1) { cache.increment total; } return; }"""
    module = planned(text).build(flags=USUAL)
    with pytest.raises(ExecutionError) as caught:
        module.run_step()
    assert caught.value.code is Code.INDEX_OUT_OF_RANGE


# --- families of model tensors ----------------------------------------------------------------------------------------


@pytest.fixture
def layers(tmp_path: Path) -> ModelLoader:
    path = tmp_path / "layers.oinf"
    tensors: dict[str, Any] = {f"W.{layer}": np.full((2, 2), layer + 1, np.float32) for layer in (1, 2, 3, 5)}
    tensors |= {
        f"Q.{layer}.{head}": np.full(2, 10 * layer + head, np.float32) for layer in range(3) for head in range(2)
    }
    save_file(path, {**tensors, "W.4": np.zeros(3, np.float32), "c": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return ModelLoader.open(path)


FAMILY = """
constant {{ W(l): f32[2, 2] @pattern("W.{{l}}"); }} volatile {{ y: f32[2, 2]; }} persistent {{ n: i32 @init({first}); }}
block entry {{ op relu(W[n]) >> y; cache.increment n; return y; }}
"""


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 5, 6, -1])
def test_entries_that_do_not_exist_are_errors(first: int, layers: ModelLoader) -> None:
    agree(FAMILY.format(first=first), layers, steps=2)


def test_an_entry_that_does_not_exist_is_an_error_even_if_nobody_needs_it(layers: ModelLoader) -> None:
    text = FAMILY.format(first=1).replace("op relu(W[n]) >> y;", "assign a: f32[2, 2]; op relu(W[n]) >> a;")
    agree(text, layers, steps=7)
    agree(text.replace("op relu(W[n])", "transfer W[n]"), layers, steps=7)


def test_entries_in_loops_are_chosen_without_checks(layers: ModelLoader) -> None:
    text = """
    constant { Q(l, h): f32[2] @pattern("Q.{l}.{h}"); } volatile { y: f32[2]; }
    block entry { loop a (l in 0..3) { loop b (h in 0..2) { op add(y, Q[l, h]) >> y; } } return y; }
    """
    agree(text, layers)
    source = planned(text, layers).project.code()["src/net.c"]
    assert "ERROR_INDEX, " not in source


def test_model_names_with_dynamic_loops(layers: ModelLoader) -> None:
    agree(
        """volatile { y: f32[2]; } persistent { n: i32 @init(1); }
        block entry {
            loop a (l in 0..n) { op add(y, model[fmt("Q.{l}.1")]) >> y; }
            cache.increment n;
            return y;
        }""",
        layers,
        steps=4,
    )


def test_ops_read_parts_and_resets_give_back_the_models_values(layers: ModelLoader) -> None:
    agree(
        """dynamic { x: f32[3]; } persistent { i: i32; s: f32[2, 3] @ref("c"); }
        volatile { y: f32[2]; z: f32[3]; }
        block entry {
            op add(s[i, 1..3], s[1, 0..2]) >> y;
            op add(x, s[i, ]) >> s[1, ];
            cache.read s[i, ] >> z;
            cache.reset s[0, 1..];
            cache.increment i;
            return y, z;
        }""",
        layers,
        inputs=lambda step: {"x": np.arange(3, dtype=np.float32) + step},
        steps=3,
    )


WRITTEN = """
volatile {{ W(l): f32[2, 2] @pattern("W.{{l}}"); y: f32[2, 2]; z: f32[2, 2]; three: i32 @init(3); }}
persistent {{ n: i32 @init(1); }}
block entry {{ {body} cache.increment n; return y, z; }}
{blocks}
"""


@pytest.mark.parametrize(
    ("body", "blocks"),
    [
        ("op add(W[1], W[2]) >> W[2]; op add(W[2], W[3]) >> y;", ""),
        ("transfer W[n] >> y; op neg(y) >> W[n]; transfer W[3] >> z;", ""),
        ("loop a (l in 1..4) { op add(W[l], W[n]) >> W[l]; op add(y, W[l]) >> y; }", ""),
        ("loop a (l in 1..n) { op add(W[l], W[1]) >> W[3]; } transfer W[3] >> y; transfer W[5] >> z;", ""),
        (
            "assign c: bool; op lt(n, three) >> c; branch c one two; transfer W[2] >> y; transfer W[3] >> z;",
            "block one { op neg(W[1]) >> W[2]; return; } block two { op neg(W[1]) >> W[3]; return; }",
        ),
        ("op neg(W[1]) >> z; transfer z >> W[n + 1]; op matmul(W[n], W[2]) >> y;", ""),
    ],
)
def test_written_entries_of_prefix_tables_hold_until_the_step_ends(body: str, blocks: str, layers: ModelLoader) -> None:
    agree(WRITTEN.format(body=body, blocks=blocks), layers, steps=6)


def test_memory_is_only_for_entries_that_are_written(layers: ModelLoader) -> None:
    text = """volatile {{ Q(l, h): f32[2] @pattern("Q.{{l}}.{{h}}"); y: f32[2]; }} persistent {{ n: i32; }}
    block entry {{ op neg(Q[1, 1]) >> Q[{}, 0]; op add(Q[n, 0], Q[n, 1]) >> y; return y; }}"""
    for index, entries in (("2", 1), ("n", 6)):
        plan = planned(text.format(index), layers)
        (own,) = (value for value in plan.memory.offsets if value.variable == "Q" and len(value.shape) == 2)
        assert own.nbytes == 8 * entries


def test_written_entries_of_packed_tensors_agree(tmp_path: Path) -> None:
    path = tmp_path / "packed.oinf"
    save_file(path, {f"W.{layer}": Tensor.from_numpy([layer, -layer, 3], "i4") for layer in range(3)})
    text = """volatile { W(l): i4[3] @pattern("W.{l}"); y: i4[3]; } persistent { n: i32; }
    block entry { op add(W[n], W[0]) >> W[n]; op add(W[n], W[2]) >> y; cache.increment n; return y; }"""
    agree(text, ModelLoader.open(path), steps=4)


def test_a_written_entry_keeps_the_quantization_of_its_tensor(tmp_path: Path) -> None:
    path = tmp_path / "quantized.oinf"
    scales = enumerate((0.5, 10.0))
    save_file(
        path,
        {
            f"W.{layer}": TensorSpec([[4]], "i8", quant=QuantParams("symmetric", QuantScale.per_tensor(scale)))
            for layer, scale in scales
        },
    )
    text = """dynamic { x: f32[1, 1]; q: i8[1, 1]; } volatile { y: f32[1, 1]; W(l): i8[1, 1] @pattern("W.{l}"); }
    persistent { n: i32; } block entry {
        transfer q >> W[n]; op matmul(x, W[n]) >> y; op matmul(y, W[1]) >> y; cache.increment n; return y; }"""
    agree(text, ModelLoader.open(path), lambda step: {"x": [[3.0]], "q": [[step + 2]]}, steps=3)


def test_an_entry_is_the_one_that_the_index_chose_when_it_was_copied(layers: ModelLoader) -> None:
    agree(
        """constant { W(l): f32[2, 2] @pattern("W.{l}"); } volatile { y: f32[2, 2]; z: f32[2, 2]; v: f32[2, 2]; }
        persistent { n: i32 @init(1); }
        block entry {
            transfer W[n] >> z;
            cache.increment n;
            op neg(z) >> y;
            loop a (l in 1..3) {
                transfer W[l] >> v;
                loop b (k in 0..2) { op add(y, v) >> y; }
            }
            return y, z;
        }""",
        layers,
        steps=3,
    )


# --- dynamic sizes ----------------------------------------------------------------------------------------------------


def test_sizes_come_from_inputs_in_any_form() -> None:
    text = """sizes { T <= 8; U <= 4; } dynamic { x: f32[2*T+1, U]; y: f32[U/2]; }
    volatile { z: f32[2*T+1, U]; w: f32[U/2]; }
    block entry { op add(x, x) >> z; op neg(y) >> w; return z, w; }"""
    shapes = [(3, 2, 1), (17, 4, 2), (1, 0, 0), (5, 3, 1), (3, 2, 2)]

    def inputs(step: int) -> dict[str, object]:
        t, u, v = shapes[step]
        return {"x": np.ones((t, u), np.float32), "y": np.ones(v, np.float32)}

    agree(text, inputs=inputs, steps=len(shapes))


@pytest.mark.parametrize("dims", ["T", "2*T", "T+1", "T/2", "3*T-3"])
def test_sizes_are_bound_by_slices(dims: str) -> None:
    agree(
        f"""sizes {{ T <= 8; }} persistent {{ n: i32; K(t): f32[2] @table @fixed(t=32) @init(1); }}
        volatile {{ k: f32[{dims}, 2]; y: f32[{dims}, 2]; }}
        block entry {{ cache.read K[0..n] >> k; op add(k, k) >> y; cache.increment n; return y; }}""",
        steps=12,
    )


def test_a_size_without_a_value_is_an_error_when_it_is_needed() -> None:
    agree(
        """sizes { T <= 9; } dynamic { go: bool; } persistent { K(t): f32[2] @table @fixed(t=9); }
        volatile { k: f32[T, 2]; y: f32[T, 2]; n: f32 @init(1); }
        block entry { branch go fill skip; op add(y, y) >> y; return n, y; }
        block fill { cache.read K[0..] >> k; op exp(k) >> y; return; }
        block skip { return; }""",
        inputs=lambda step: {"go": step != 1},
        steps=3,
    )


def test_two_values_of_a_size_are_an_error() -> None:
    agree(
        """sizes { T <= 9; } dynamic { x: f32[T]; } persistent { n: i32; K(t): f32[] @table @fixed(t=9) @init(2); }
        volatile { k: f32[T]; y: f32[T]; }
        block entry { cache.read K[0..n] >> k; op add(k, x) >> y; cache.increment n; return y; }""",
        inputs=lambda _step: {"x": np.ones(2, np.float32)},
        steps=5,
    )


def test_lengths_without_names_are_those_of_their_node() -> None:
    """An op reads slices directly: their lengths have no names, and differ from turn to turn of a loop."""
    agree(
        """sizes { T <= 9; }
        persistent { n: i32; K(t): f32[2] @table @fixed(t=9) @init(2); V(t): f32[2] @table @fixed(t=12); }
        volatile { y: f32[2]; s: f32[T, 2]; }
        block entry {
            loop turns (i in 0..4) { op sum_axis(K[0..n+i], axes=[0]) >> y; }
            op mul(K[0..n], V[0..n]) >> s;
            cache.write s >> V[0..n];
            cache.increment n;
            return y, s;
        }""",
        steps=8,
    )


def test_lengths_that_must_fit_named_sizes_are_refused() -> None:
    text = """sizes { T <= 9; } dynamic { x: f32[T]; } persistent { n: i32; K(t): f32[] @table @fixed(t=9); }
    volatile { y: f32[T]; } block entry { op add(K[0..n], x) >> y; return y; }"""
    with pytest.raises(GraphError) as caught:
        planned(text)
    assert caught.value.code is Code.NOT_SYNTHESIZED
    assert "read the slice into a variable" in str(caught.value)


def test_extents_that_shrink_as_a_size_grows_stay_in_memory() -> None:
    agree(
        """sizes { T <= 8; } dynamic { x: f32[T]; y: f32[8-T]; } volatile { a: f32[8-T]; b: f32[T]; }
        block entry { op neg(y) >> a; op neg(x) >> b; return a, b; }""",
        inputs=lambda step: {"x": np.ones(8 - step, np.float32), "y": np.ones(step, np.float32)},
        steps=1,
    )
