"""Prefix tables and cache tables: entries, extents, bounds, slices."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, step_error, text_codes

from openinfer import Executor
from openinfer.errors import Code

WRITE = """dynamic {{ i: i32; x: i32[2]; }} persistent {{ A(i): i32[2] @table {attributes}; }}
    block entry {{ cache.write x >> A[i]; return; }}"""
READ_ONE = (
    "dynamic { i: i32; } persistent { %s } volatile { y: i32[2]; } block entry { cache.read A[i] >> y; return y; }"
)


def writer(attributes: str = "", *indices: int) -> Executor:
    """A growable table ``A`` whose entries at these indices have been written, each with its own number."""
    ready = executor(WRITE.format(attributes=attributes))
    for index in indices:
        step(ready, i=index, x=[index, -index])
    return ready


def numbered(access: str, length: str, count: int = 10, **inputs: Any) -> list[int]:
    """The numbers of the entries that an access of a table with ``count`` numbered entries reads."""
    values = "".join(f" {name}: i32;" for name in inputs)
    text = f"""sizes {{ T <= 64; }} dynamic {{ count: i32; {values} }}
        persistent {{ n: i32; A(i): i32[1] @table @init(-7); }}
        block entry {{ assign v: i32[1]; assign out: i32[{length}, 1];
            loop l (k in 0..count) {{ op reshape(n, shape=[1]) >> v; cache.write v >> A[k]; cache.increment n; }}
            cache.read {access} >> out; return out; }}"""
    found = after_step(text, count=count, **inputs).fetch("out")
    assert found.shape[1:] == (1,)
    return [int(number) for number in found[:, 0]]


# --- prefix tables ----------------------------------------------------------------------------------------------------


@sentence("prefix.entry")
@pytest.mark.parametrize("kind", ["volatile", "constant"])
def test_an_entry_of_a_prefix_table_is_the_model_tensor_that_the_pattern_spells(
    make_model: MakeModel, kind: str
) -> None:
    text = f"""{kind} {{ W(l): f32[1] @pattern("W.{{l}}"); Q(layer, head): f32[1] @pattern("a.{{head}}.q.{{layer}}"); }}
        dynamic {{ n: i32; }} volatile {{ a: f32[1]; b: f32[1]; }}
        block entry {{ op neg(W[n + 1]) >> a; transfer Q[2 * n, n] >> b; return; }}"""
    tensors = {"W.2": floats(5), "a.1.q.2": floats(7), "a.2.q.1": floats(8)}
    ready = after_step(text, make_model(tensors), n=1)
    assert (ready.fetch("a").tolist(), ready.fetch("b").tolist()) == ([-5.0], [7.0])


@sentence("prefix.entry")
def test_a_missing_entry_is_an_error_when_it_can_be_known_and_a_located_one_when_it_runs(make_model: MakeModel) -> None:
    text = """dynamic { n: i32; x: f32[1]; } volatile { W(l): f32[1] @pattern("W.{l}"); }
        block entry { %s return x; }"""
    model = make_model({"W.0": floats(1), "W.1": floats(2)})
    assert binding_codes(text % "loop l (i in 0..3) { op add(x, W[i]) >> x; }", model) == [Code.UNKNOWN_LINK]
    ready = executor(text % "op add(x, W[n]) >> x;", model)
    assert step(ready, n=1, x=[1.0]).fetch("x").tolist() == [3.0]
    error = step_error(ready, n=2, x=[1.0])
    assert error.code is Code.UNKNOWN_LINK
    assert "'W.2'" in error.diagnostics[0].message
    assert "node 0" in "".join(error.diagnostics[0].notes)


@sentence("prefix.entry")
def test_an_entry_of_another_type_is_an_error_when_it_can_be_known_and_when_it_runs(make_model: MakeModel) -> None:
    text = """dynamic { n: i32; x: f32[1]; } constant { W(l): f32[1] @pattern("W.{l}"); }
        block entry { op add(x, W[%s]) >> x; return x; }"""
    model = make_model({"W.0": floats(1), "W.1": floats(2, 3)})
    assert binding_codes(text % "1", model) == [Code.LINK_TYPE]
    ready = executor(text % "n", model)
    assert step_error(ready, n=1, x=[1.0]).code is Code.LINK_TYPE


@sentence("prefix.kinds")
@pytest.mark.parametrize("kind", ["dynamic", "persistent"])
def test_prefix_tables_belong_to_volatile_and_constant_memory(kind: str) -> None:
    assert Code.WRONG_SECTION in text_codes(f'{kind} {{ W(l): f32 @pattern("W.{{l}}"); }} block entry {{ return; }}')


@sentence("prefix.kinds")
def test_an_entry_of_a_volatile_prefix_table_may_be_written_and_one_of_a_constant_not(make_model: MakeModel) -> None:
    text = """%s { W(l): f32[1] @pattern("W.{l}"); } dynamic { x: f32[1]; }
        block entry { transfer x >> W[0]; op add(W[0], W[1]) >> x; return x; }"""
    model = make_model({"W.0": floats(1), "W.1": floats(2)})
    assert after_step(text % "volatile", model, x=[40.0]).fetch("x").tolist() == [42.0]
    assert text_codes(text % "constant") == [Code.CONSTANT_WRITTEN]


# --- cache tables: entries and extents --------------------------------------------------------------------------------


@sentence("table.entry")
def test_every_combination_of_indices_is_one_entry() -> None:
    text = """dynamic { x: f16[2]; } persistent { K(l, t): f16[2] @table; } volatile { a: f16[2]; b: f16[2]; }
        block entry {
            cache.write x >> K[0, 1]; op neg(x) >> x; cache.write x >> K[1, 0];
            cache.read K[0, 1] >> a; cache.read K[1, 0] >> b; return; }"""
    ready = after_step(text, x=[1.0, 2.0])
    assert (ready.fetch("a").tolist(), ready.fetch("b").tolist()) == ([1.0, 2.0], [-1.0, -2.0])
    assert ready.fetch("K").tolist() == [[[0, 0], [1, 2]], [[-1, -2], [0, 0]]]


@sentence("table.extent")
def test_the_extent_is_the_highest_index_written_plus_one() -> None:
    ready = writer()
    assert ready.fetch("A").shape == (0, 2)
    for index, extent in ((0, 1), (4, 5), (2, 5), (5, 6)):
        step(ready, i=index, x=[1, 1])
        assert ready.fetch("A").shape == (extent, 2)


@sentence("table.extent")
def test_each_index_has_an_extent_of_its_own() -> None:
    text = """dynamic { x: i32; } persistent { G(a, b): i32 @table; }
        block entry { cache.write x >> G[3, 0]; cache.write x >> G[0, 1]; return; }"""
    assert after_step(text, x=9).fetch("G").tolist() == [[0, 9], [0, 0], [0, 0], [9, 0]]


@sentence("table.growable")
def test_a_table_grows_without_limit_and_keeps_its_entries() -> None:
    text = """persistent { n: i32; A(i): i32 @table; }
        block entry { loop l (i in 0..1000) { cache.write n >> A[n]; cache.increment n; } return; }"""
    ready = executor(text)
    ready.run_step()
    ready.run_step()
    assert ready.fetch("A").tolist() == list(range(2000))


@sentence("table.unwritten")
@pytest.mark.parametrize(("attribute", "expected"), [("", [0, 0]), ("@init(-3)", [-3, -3])])
def test_an_entry_never_written_reads_as_init_or_zero(attribute: str, expected: list[int]) -> None:
    text = READ_ONE % f"A(i): i32[2] @table {attribute};"
    for index in (0, 5, 1_000_000_000):
        assert after_step(text, i=index).fetch("y").tolist() == expected
    assert writer(attribute, 2).fetch("A").tolist() == [expected, expected, [2, -2]]


@sentence("table.unwritten")
def test_an_initial_negative_zero_keeps_its_sign() -> None:
    text = """dynamic { x: f32; } persistent { K(i): f32 @table @init(-0.0); p: f32[2] @init(-0.0); }
        block entry { cache.write x >> K[2]; return; }"""
    ready = after_step(text, x=1.0)
    assert np.signbit(ready.fetch("K")).tolist() == [True, True, False]
    assert np.signbit(ready.fetch("p")).tolist() == [True, True]


@sentence("table.reading")
def test_reading_does_not_grow() -> None:
    text = """dynamic { i: i32; } persistent { A(i): i32[2] @table; } volatile { y: i32[2]; z: i32[4, 2]; }
        block entry { cache.read A[i] >> y; cache.read A[2..6] >> z; return; }"""
    assert after_step(text, i=9).fetch("A").shape == (0, 2)


@sentence("table.fixed")
def test_indices_inside_fixed_bounds_work_and_the_extent_is_still_what_was_written() -> None:
    ready = writer("@fixed(i=4)", 3, 1)
    assert ready.fetch("A").tolist() == [[0, 0], [1, -1], [0, 0], [3, -3]]


@sentence("table.fixed")
@pytest.mark.parametrize("index", [4, 5, 2**31 - 1])
def test_an_index_outside_a_fixed_bound_is_an_error_when_it_is_written_or_read(index: int) -> None:
    ready = writer("@fixed(i=4)", 0)
    assert step_error(ready, i=index, x=[1, 1]).code is Code.INDEX_OUT_OF_RANGE
    assert ready.fetch("A").tolist() == [[0, 0]]
    reader = executor(READ_ONE % "A(i): i32[2] @table @fixed(i=4);")
    assert step_error(reader, i=index).code is Code.INDEX_OUT_OF_RANGE


@sentence("table.fixed")
@pytest.mark.parametrize("access", ["A[4]", "A[N]", "A[0..5]", "A[i]"])
def test_an_index_that_is_outside_whatever_happens_is_found_when_the_graph_is_bound(access: str) -> None:
    shape = "i32[5, 2]" if ".." in access else "i32[2]"
    text = f"""persistent {{ A(i): i32[2] @table @fixed(i=4); }} volatile {{ y: {shape}; }}
        block entry {{ loop l (i in 0..5) {{ cache.read {access} >> y; }} return; }}"""
    assert binding_codes(text, sizes={"N": 4}) == [Code.INDEX_OUT_OF_RANGE]


@sentence("table.fixed")
def test_only_the_indices_that_are_named_are_bounded_and_bounds_may_be_sizes() -> None:
    text = """dynamic { l: i32; t: i32; x: i32; } persistent { K(l, t): i32 @table @fixed(l=2*N); }
        block entry { cache.write x >> K[l, t]; return; }"""
    ready = executor(text, sizes={"N": 2})
    assert step(ready, l=3, t=100, x=1).fetch("K").shape == (4, 101)
    assert step_error(ready, l=4, t=0, x=1).code is Code.INDEX_OUT_OF_RANGE


@sentence("table.fixed")
def test_a_slice_outside_a_fixed_bound_is_an_error() -> None:
    text = """sizes { T <= 9; } dynamic { e: i32; } persistent { A(i): i32 @table @fixed(i=4); }
        block entry { assign y: i32[T]; cache.read A[1..e] >> y; return y; }"""
    assert after_step(text, e=4).fetch("y").tolist() == [0, 0, 0]
    assert step_error(executor(text), e=5).code is Code.INDEX_OUT_OF_RANGE


@sentence("index.negative")
def test_a_negative_single_index_is_an_error_written_or_computed() -> None:
    assert text_codes(READ_ONE.replace("A[i]", "A[-1]") % "A(i): i32[2] @table;") == [Code.NEGATIVE_INDEX]
    ready = executor(READ_ONE % "A(i): i32[2] @table;")
    assert step_error(ready, i=-1).code is Code.NEGATIVE_INDEX
    assert step_error(writer(), i=-1, x=[0, 0]).code is Code.NEGATIVE_INDEX


@sentence("index.expressions")
def test_index_expressions_use_literals_loop_indices_sizes_and_variables() -> None:
    text = """dynamic { v: i32; x: i32; } persistent { A(i): i32 @table; }
        block entry { loop l (k in 1..3) { cache.write x >> A[(v + k) * N - 7 / 2 % 2 + k % 2]; } return; }"""
    found = after_step(text, sizes={"N": 3}, v=1, x=5).fetch("A").tolist()
    assert [index for index, value in enumerate(found) if value] == [6, 8]


@sentence("index.division")
@pytest.mark.parametrize(("value", "expected"), [(7, 3), (-7, -4), (6, 3), (-1, -1)])
def test_division_in_an_index_floors(value: int, expected: int) -> None:
    text = """dynamic { v: i32; x: i32; } persistent { A(i): i32 @table; }
        block entry { cache.write x >> A[v / 2 + 10]; return; }"""
    assert after_step(text, v=value, x=1).fetch("A").shape == (10 + expected + 1,)


@sentence("index.division")
@pytest.mark.parametrize("operator", ["/", "%"])
def test_an_index_that_divides_by_zero_is_a_located_error(operator: str) -> None:
    text = f"""dynamic {{ v: i32; x: i32; }} persistent {{ A(i): i32 @table; }}
        block entry {{ cache.write x >> A[6 {operator} v]; return; }}"""
    error = step_error(executor(text), v=0, x=1)
    assert error.code is Code.BAD_VALUE
    assert "node 0" in "".join(error.diagnostics[0].notes)


@sentence("table.kinds")
@pytest.mark.parametrize("kind", ["dynamic", "volatile", "constant"])
def test_cache_tables_belong_to_persistent_memory(kind: str) -> None:
    assert Code.WRONG_SECTION in text_codes(f"{kind} {{ A(i): f32 @table; }} block entry {{ return; }}")


# --- cache tables: slices ---------------------------------------------------------------------------------------------


@sentence("table.whole")
def test_empty_brackets_are_the_whole_table() -> None:
    assert numbered("A[]", "T") == list(range(10))
    assert numbered("A[]", "T", count=0) == []


@sentence("table.slice")
@pytest.mark.parametrize(("access", "expected"), [("A[2..5]", [2, 3, 4]), ("A[0..9]", [*range(9)]), ("A[4..5]", [4])])
def test_a_slice_is_half_open(access: str, expected: list[int]) -> None:
    assert numbered(access, str(len(expected))) == expected


@sentence("table.slice")
@pytest.mark.parametrize(("access", "length"), [("A[5..5]", "0"), ("A[5..2]", "0"), ("A[-3..4]", "T")])
def test_a_slice_whose_end_is_not_after_its_start_is_empty(access: str, length: str) -> None:
    assert numbered(access, length) == []


@sentence("table.missing-ends")
@pytest.mark.parametrize(
    ("access", "length", "expected"),
    [("A[..3]", "3", [0, 1, 2]), ("A[7..]", "T", [7, 8, 9]), ("A[..]", "T", [*range(10)])],
)
def test_missing_ends_are_the_edges(access: str, length: str, expected: list[int]) -> None:
    assert numbered(access, length) == expected


@sentence("table.negative-end")
@pytest.mark.parametrize(
    ("access", "expected"),
    [
        ("A[0..-3]", [0, 1, 2, 3, 4, 5, 6]),
        ("A[..-8]", [0, 1]),
        ("A[-2..]", [8, 9]),
        ("A[-4..-1]", [6, 7, 8]),
        ("A[8..-1]", [8]),
        ("A[-100..2]", [0, 1]),
        ("A[0..-100]", []),
    ],
)
def test_negative_ends_count_from_the_extent(access: str, expected: list[int]) -> None:
    assert numbered(access, "T") == expected


@sentence("table.negative-end")
def test_a_computed_end_counts_from_the_extent_when_it_is_negative() -> None:
    assert numbered("A[a..b]", "T", a=2, b=5) == [2, 3, 4]
    assert numbered("A[a..b]", "T", a=-3, b=-1) == [7, 8]


@sentence("table.past-extent")
def test_an_explicit_slice_past_the_extent_reads_initial_values_there() -> None:
    assert numbered("A[8..12]", "4") == [8, 9, -7, -7]
    assert numbered("A[20..22]", "2") == [-7, -7]
    assert numbered("A[0..2]", "2", count=0) == [-7, -7]


MIXED = """sizes { T <= 9; U <= 9; } persistent { n: i32; B(i, j): i32[1] @table; }
    block entry { assign v: i32[1]; assign out: i32[%s];
        loop a (i in 0..3) { loop b (j in 0..4) {
            cache.reset n; loop c (k in 0..10 * i + j) { cache.increment n; }
            op reshape(n, shape=[1]) >> v; cache.write v >> B[i, j]; } }
        cache.read %s >> out; return out; }"""


@sentence("table.mixed", "table.front")
@pytest.mark.parametrize(
    ("access", "shape", "expected"),
    [
        ("B[1, 0..3]", "3, 1", [10, 11, 12]),
        ("B[1, ]", "T, 1", [10, 11, 12, 13]),
        ("B[, 2]", "T, 1", [2, 12, 22]),
        ("B[1.., -1..]", "T, U, 1", [[13], [23]]),
        ("B[0..2, 1]", "2, 1", [1, 11]),
        ("B[]", "T, U, 1", [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]]),
        ("B[2, 3]", "1", 23),
    ],
)
def test_slices_mix_with_indices_and_put_their_lengths_in_front(access: str, shape: str, expected: Any) -> None:
    ready = executor(MIXED % (shape, access))
    ready.run_step()
    found = ready.fetch("out")
    assert found.tolist() == np.array(expected)[..., None].tolist()


@sentence("table.slice-write")
def test_writing_a_slice_writes_each_entry_and_grows() -> None:
    text = """dynamic { x: i32[2, 1]; } persistent { A(i): i32[1] @table @init(7); }
        block entry { cache.write x >> A[3..5]; return; }"""
    assert after_step(text, x=[[1], [2]]).fetch("A").tolist() == [[7], [7], [7], [1], [2]]


@sentence("table.slice-write")
def test_writing_the_whole_table_and_mixed_slices_keeps_the_rest() -> None:
    text = """dynamic { x: i32[2]; } persistent { B(i, j): i32 @table; } sizes { T <= 9; U <= 9; }
        block entry { assign all: i32[T, U];
            cache.write x >> B[1, 0..2]; cache.write x >> B[0..2, 2];
            cache.read B[] >> all; op add(all, all) >> all; cache.write all >> B[]; return; }"""
    assert after_step(text, x=[1, 2]).fetch("B").tolist() == [[0, 0, 2], [2, 4, 4]]


@sentence("table.slice-write")
def test_a_value_that_does_not_have_the_slices_shape_is_an_error() -> None:
    text = """sizes { T <= 9; } dynamic { e: i32; x: i32[T]; } persistent { A(i): i32 @table; }
        block entry { cache.write x >> A[0..e]; return; }"""
    assert after_step(text, e=2, x=[1, 2]).fetch("A").tolist() == [1, 2]
    assert step_error(executor(text), e=3, x=[1, 2]).code is Code.SHAPE_MISMATCH
    static = text.replace("0..e", "0..3").replace("T <= 9", "T := 2")
    assert binding_codes(static) == [Code.RESULT_TYPE]


@sentence("table.operand")
def test_an_op_reads_and_writes_entries_and_slices_directly() -> None:
    text = """dynamic { x: f32[2]; } persistent { step: i32; K(t): f32[2] @table; } volatile { y: f32[2]; }
        block entry {
            op add(x, x) >> K[step]; op sum_axis(K[], axis=0) >> y; cache.increment step; return y; }"""
    ready = after_step(text, x=[1.0, 2.0])
    assert step(ready, x=[10.0, 20.0]).fetch("y").tolist() == [22.0, 44.0]
