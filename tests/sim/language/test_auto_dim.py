"""Auto-dim matrices: every documented form of access, growth by writing, bounds, tables of matrices."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, step, step_error, text_codes

from openinfer import Executor
from openinfer.errors import Code
from openinfer.ops import Array

SIZES = {"D": 2, "H": 3}
FILL = """sizes { T <= 64; U <= 64; } dynamic { x: i32[T, U]; }
    persistent { A(i, j): i32[D, H] @auto_dim(i, j) @init(-1) %s; }
    block entry { cache.write x >> A[0..T, 0..U]; %s return; }"""


def cells(rows: int, columns: int) -> Array:
    """A matrix whose cell [r, c] is 10r + c."""
    return (10 * np.arange(rows)[:, None] + np.arange(columns)).astype(np.int32)


def read(access: str, shape: str, rows: int = 4, columns: int = 5, **inputs: Any) -> Array:
    """What an access reads of a matrix [2, 3] that has grown to [rows, columns]."""
    values = "".join(f" {name}: i32;" for name in inputs)
    text = FILL.replace("dynamic {", f"dynamic {{ {values}", 1).replace("sizes {", "sizes { P <= 64; Q <= 64;", 1)
    node = f"cache.read {access} >> out;"
    text = text.replace("block entry {", f"block entry {{ assign out: i32[{shape}];", 1) % ("", node)
    ready = after_step(text, sizes=SIZES, x=cells(rows, columns), **inputs)
    assert ready.fetch("A").shape == (max(rows, 2), max(columns, 3))
    found: Array = ready.fetch("out")
    return found


def fixed(i: int, j: int) -> Executor:
    """A matrix [2, 3] whose growth is bounded."""
    return executor(FILL % (f"@fixed(i={i}, j={j})", ""), sizes=SIZES)


@sentence("auto-dim.shape")
def test_a_matrix_begins_with_the_declared_shape_and_initial_cells() -> None:
    ready = executor(FILL % ("", ""), sizes=SIZES)
    assert ready.fetch("A").tolist() == [[-1] * 3] * 2


@sentence("auto-dim.shape", "auto-dim.grows")
def test_a_matrix_has_the_declared_shape_plus_what_it_has_grown() -> None:
    ready = executor(FILL % ("", ""), sizes=SIZES)
    for rows, columns, shape in ((1, 1, (2, 3)), (3, 1, (3, 3)), (1, 5, (3, 5)), (4, 4, (4, 5))):
        step(ready, x=cells(rows, columns))
        assert ready.fetch("A").shape == shape
    expected = np.full((4, 5), -1)
    expected[:4, :4] = cells(4, 4)
    expected[0, 4] = 4
    assert ready.fetch("A").tolist() == expected.tolist()


@sentence("auto-dim.single")
@pytest.mark.parametrize(("i", "j"), [(0, 0), (1, 0), (0, 2), (2, 2)])
def test_single_indices_are_the_matrix_grown_by_them(i: int, j: int) -> None:
    assert read(f"A[{i}, {j}]", f"D+{i}, H+{j}", 4, 5).tolist() == cells(2 + i, 3 + j).tolist()


@sentence("auto-dim.single")
def test_cells_that_a_matrix_does_not_have_yet_are_initial() -> None:
    expected = np.full((5, 5), -1)
    expected[:2, :3] = cells(2, 3)
    assert read("A[i, j]", "P, Q", 2, 3, i=3, j=2).tolist() == expected.tolist()


@sentence("auto-dim.top-left")
def test_single_indices_of_a_larger_matrix_are_its_top_left_part() -> None:
    assert read("A[0, 0]", "D, H", 6, 7).tolist() == cells(2, 3).tolist()
    assert read("A[i, j]", "P, Q", 6, 7, i=1, j=2).tolist() == cells(3, 5).tolist()


@sentence("auto-dim.slices")
@pytest.mark.parametrize(
    ("access", "shape", "rows", "columns"),
    [
        ("A[1..3, ]", "2, Q", slice(1, 3), slice(None)),
        ("A[, 2..4]", "P, 2", slice(None), slice(2, 4)),
        ("A[1..3, 2..4]", "2, 2", slice(1, 3), slice(2, 4)),
        ("A[]", "P, Q", slice(None), slice(None)),
        ("A[0..D+i, ]", "P, Q", slice(0, 3), slice(None)),
        ("A[, 0..H+j]", "P, Q", slice(None), slice(0, 5)),
        ("A[0..D+i, 0..H+j]", "P, Q", slice(0, 3), slice(0, 5)),
        ("A[-1.., ..-2]", "P, Q", slice(-1, None), slice(None, -2)),
    ],
)
def test_slices_are_ordinary_parts_of_the_matrix(access: str, shape: str, rows: slice, columns: slice) -> None:
    assert read(access, shape, 4, 5, i=1, j=2).tolist() == cells(4, 5)[rows, columns].tolist()


@sentence("auto-dim.rows")
@pytest.mark.parametrize(
    ("access", "shape", "expected"),
    [
        ("A[i, ]", "Q", [30, 31, 32, 33, 34]),
        ("A[, j]", "P", [2, 12, 22, 32]),
        ("A[0, ]", "Q", [0, 1, 2, 3, 4]),
        ("A[i, 1..3]", "2", [31, 32]),
        ("A[1..3, j]", "2", [12, 22]),
    ],
)
def test_one_index_beside_a_slice_is_a_row_or_a_column(access: str, shape: str, expected: list[int]) -> None:
    assert read(access, shape, 4, 5, i=3, j=2).tolist() == expected


@sentence("auto-dim.reading")
@pytest.mark.parametrize(
    ("access", "shape"), [("A[9, 9]", "D+9, H+9"), ("A[0..9, 0..9]", "9, 9"), ("A[8, ]", "Q"), ("A[, 8]", "P")]
)
def test_reading_never_grows(access: str, shape: str) -> None:
    found = read(access, shape, 2, 3)  # which looks at the extents afterwards
    assert -1 in found


@sentence("auto-dim.grows")
def test_writing_past_the_edge_appends_a_row() -> None:
    text = """dynamic { row: f32[1, D]; } persistent { step: i32 @init(1); K(r, c): f32[1, D] @auto_dim(r, c); }
        block entry { cache.write row >> K[step..step+1, ]; cache.increment step; return; }"""
    ready = executor(text, sizes={"D": 2})
    for number in (1.0, 2.0, 3.0):
        step(ready, row=[[number, -number]])
    assert ready.fetch("K").tolist() == [[0, 0], [1, -1], [2, -2], [3, -3]]


@sentence("auto-dim.grows")
@pytest.mark.parametrize(
    ("access", "value", "shape"),
    [
        ("A[1, 1]", cells(3, 4), (3, 4)),
        ("A[4, ]", cells(1, 3)[0], (5, 3)),
        ("A[, 4]", cells(1, 2)[0], (2, 5)),
        ("A[3..4, 4..6]", cells(1, 2), (4, 6)),
    ],
)
def test_every_form_of_access_can_be_written_and_grows(access: str, value: Array, shape: tuple[int, ...]) -> None:
    dims = ", ".join(map(str, value.shape))
    text = f"""dynamic {{ x: i32[{dims}]; }} persistent {{ A(i, j): i32[2, 3] @auto_dim(i, j) @init(-1); }}
        volatile {{ y: i32[{dims}]; }}
        block entry {{ cache.write x >> {access}; cache.read {access} >> y; return y; }}"""
    ready = after_step(text, x=value)
    assert ready.fetch("A").shape == shape
    assert ready.fetch("y").tolist() == value.tolist()
    assert int((ready.fetch("A") == -1).sum()) == np.prod(shape) - value.size


@sentence("auto-dim.order")
def test_indices_map_to_dimensions_in_the_order_of_the_attribute() -> None:
    text = """dynamic { x: i32[2]; } persistent { A(i, j): i32[2, 3] @auto_dim(j, i); }
        block entry { cache.write x >> A[4, 0..2]; return; }"""
    assert after_step(text, x=[7, 8]).fetch("A").tolist() == [[0, 0, 0, 0, 7], [0, 0, 0, 0, 8]]


@sentence("auto-dim.order")
def test_dimensions_without_an_index_do_not_grow() -> None:
    text = """dynamic { x: i32[1, 3]; } persistent { A(i): i32[1, 3] @auto_dim(i); } volatile { y: i32[3, 3]; }
        block entry { cache.write x >> A[2..3]; cache.read A[2] >> y; return y; }"""
    assert after_step(text, x=[[1, 2, 3]]).fetch("y").tolist() == [[0, 0, 0], [0, 0, 0], [1, 2, 3]]


@sentence("auto-dim.fixed")
def test_fixed_bounds_the_growth() -> None:
    ready = fixed(2, 1)
    assert step(ready, x=cells(4, 4)).fetch("A").tolist() == cells(4, 4).tolist()
    for rows, columns in ((5, 1), (1, 5), (5, 5)):
        assert step_error(ready, x=cells(rows, columns)).code is Code.INDEX_OUT_OF_RANGE
    assert ready.fetch("A").tolist() == cells(4, 4).tolist()


@sentence("auto-dim.fixed")
@pytest.mark.parametrize(("i", "j", "is_inside"), [(2, 1, True), (3, 0, False), (0, 2, False), (-1, 0, False)])
def test_fixed_bounds_what_can_be_read_as_grown(i: int, j: int, is_inside: bool) -> None:
    text = """sizes { P <= 64; Q <= 64; } dynamic { i: i32; j: i32; }
        persistent { A(i, j): i32[2, 3] @auto_dim(i, j) @fixed(i=2, j=1); }
        block entry { assign out: i32[P, Q]; cache.read A[i, j] >> out; return out; }"""
    if is_inside:
        assert after_step(text, i=i, j=j).fetch("out").shape == (2 + i, 3 + j)
    else:
        assert step_error(executor(text), i=i, j=j).code is Code.INDEX_OUT_OF_RANGE


@sentence("auto-dim.fixed")
@pytest.mark.parametrize("access", ["A[3, 0]", "A[4, ]", "A[0..5, ]", "A[, 4]"])
def test_growth_outside_a_bound_whatever_happens_is_found_when_the_graph_is_bound(access: str) -> None:
    text = f"""sizes {{ P <= 9; Q <= 9; }} persistent {{ A(i, j): i32[2, 3] @auto_dim(i, j) @fixed(i=2, j=1); }}
        block entry {{ assign out: i32[{"P" if access in ("A[4, ]", "A[, 4]") else "P, Q"}]; cache.read {access} >> out;
        return; }}"""
    assert Code.INDEX_OUT_OF_RANGE in binding_codes(text)


TABLE = """sizes {{ P <= 64; Q <= 64; R <= 64; }} dynamic {{ l: i32; step: i32; row: i32[1, 2]; }}
    persistent {{ C(l, i, j): i32[1, 2] @table @auto_dim(i, j) @init(-1) {attributes}; }}
    block entry {{ assign out: i32[{shape}]; cache.write row >> C[l, step..step+1, ]; {node} return out; }}"""


def after_writes(shape: str, node: str, attributes: str = "") -> Any:
    """The result of a node after matrix 0 has grown to three rows and matrix 2 to two."""
    ready = executor(TABLE.format(shape=shape, node=node, attributes=attributes))
    for matrix, row, value in ((0, 2, 5), (2, 1, 6)):
        step(ready, l=matrix, step=row, row=[[value, value]])
    return ready.fetch("out").tolist()


@sentence("auto-dim.table")
@pytest.mark.parametrize(
    ("access", "shape", "expected"),
    [
        ("C[0, 2, 0]", "3, 2", [[-1, -1], [-1, -1], [5, 5]]),
        ("C[2, 1..2, ]", "1, Q", [[6, 6]]),
        ("C[2, 1, ]", "Q", [6, 6]),
        ("C[2, , ]", "P, Q", [[-1, -1], [6, 6]]),
        ("C[1, , ]", "P, Q", [[-1, -1]]),
        ("C[9, 1, 0]", "2, 2", [[-1, -1], [-1, -1]]),
        ("C[0..4, 0, 0]", "4, 1, 2", [[[-1, -1]]] * 4),
        ("C[0..3, 2, 0]", "3, 3, 2", [[[-1, -1]] * 2 + [[5, 5]], [[-1, -1]] * 3, [[-1, -1], [6, 6], [-1, -1]]]),
        ("C[]", "R, P, Q", [[[-1, -1]] * 2 + [[5, 5]], [[-1, -1]] * 3, [[-1, -1], [6, 6], [-1, -1]]]),
        ("C[-1.., 1, ]", "R, Q", [[6, 6]]),
    ],
)
def test_with_table_the_other_indices_choose_the_matrix(access: str, shape: str, expected: Any) -> None:
    assert after_writes(shape, f"cache.read {access} >> out;") == expected


@sentence("auto-dim.table")
def test_with_table_both_kinds_of_index_can_be_bounded() -> None:
    ready = executor(TABLE.format(shape="1", node="", attributes="@fixed(l=2, i=1)"))
    step(ready, l=1, step=1, row=[[1, 1]])
    assert step_error(ready, l=2, step=0, row=[[1, 1]]).code is Code.INDEX_OUT_OF_RANGE
    assert step_error(ready, l=0, step=2, row=[[1, 1]]).code is Code.INDEX_OUT_OF_RANGE
    assert ready.fetch("C").tolist() == [[[-1, -1], [-1, -1]], [[-1, -1], [1, 1]]]


@sentence("auto-dim.table")
def test_a_slice_of_matrices_can_be_written() -> None:
    text = """dynamic { x: i32[2, 1, 2]; } persistent { C(l, i, j): i32[1, 2] @table @auto_dim(i, j); }
        block entry { cache.write x >> C[1..3, 1..2, ]; return; }"""
    expected = [[[0, 0], [0, 0]], [[0, 0], [1, 2]], [[0, 0], [3, 4]]]
    assert after_step(text, x=[[[1, 2]], [[3, 4]]]).fetch("C").tolist() == expected


@sentence("auto-dim.table")
def test_an_index_that_is_no_dimension_needs_a_table() -> None:
    text = "persistent { C(l, i): i32[2] @auto_dim(i); } block entry { return; }"
    assert text_codes(text) == [Code.WRONG_SECTION]
