"""Graphs over the rows of files: the same rows in their order, whole parts, and runs that go on where they stopped."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.in_process import openinfer

from openinfer.errors import BatchError, OpenInferError
from openinfer.scale import BatchRun, Predictor, run_local
from openinfer.scale.columns import rows_of

ROWS = """sizes { B <= 8; } dynamic { x: f32[B, 2]; k: i64[B]; } volatile { y: f32[B, 2]; n: i64[B]; }
block entry { op add(x, x) >> y; op add(k, 1) >> n; return y, n; }"""
SINGLE = """sizes { T <= 9; } dynamic { x: f32[T]; } volatile { y: f32; z: f32[T]; }
block entry { op sum_axis(x, axis=0) >> y; op add(x, x) >> z; return y, z; }"""


def written(folder: Path, files: int = 2, rows: int = 50, groups: int = 5) -> list[str]:
    """Files of rows, each in several row groups."""
    random, names = np.random.default_rng(0), []
    for number in range(files):
        values = random.standard_normal((rows, 2)).astype(np.float32)
        table = pa.table(
            {
                "x": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 2),
                "k": pa.array(range(number * rows, (number + 1) * rows)),
                "id": pa.array([f"{number}-{row}" for row in range(rows)]),
            }
        )
        names.append(str(folder / f"in-{number}.parquet"))
        pq.write_table(table, names[-1], row_group_size=rows // groups)
    return names


def graph(folder: Path, text: str = ROWS) -> str:
    (folder / "graph.oig").write_text(text)
    return str(folder / "graph.oig")


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.parquet"))}


def test_outputs_are_columns_in_the_order_of_rows(tmp_path: Path) -> None:
    files = written(tmp_path)
    out = tmp_path / "out"
    done = openinfer(
        *("batch", graph(tmp_path), "--input", str(tmp_path / "in-*.parquet"), "--output", str(out)),
        *("--keep", "id", "--part-rows", "20", "--device", "host"),
    )
    assert done.out == f"100 rows in 6 parts: {out}\n", done.err
    found, given = (
        pa.concat_tables([pq.read_table(one) for one in paths]) for paths in (sorted(out.glob("*.parquet")), files)
    )
    assert found["id"] == given["id"]
    assert found["n"].to_pylist() == [one + 1 for one in given["k"].to_pylist()]
    flat = np.array(given["x"].to_pylist(), np.float32)
    assert np.array_equal(np.array(found["y"].to_pylist(), np.float32), flat * 2)
    assert found.schema.field("y").type == pa.list_(pa.float32(), 2)


def test_a_run_goes_on_with_what_is_missing_and_writes_nothing_twice(tmp_path: Path) -> None:
    run = BatchRun(graph(tmp_path), tuple(written(tmp_path)), str(tmp_path / "out"), part_rows=20)
    assert run_local(run, 2).done_before == 0
    first = results(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    lost = sorted(times)[2]
    lost.unlink()
    (tmp_path / "out" / ".oinf-0.tmp").write_bytes(b"half")
    report = run_local(run, 2)
    assert (report.parts, report.rows, report.done_before) == (6, 100, 5)
    assert results(tmp_path / "out") == first
    assert all(path.stat().st_mtime_ns == time for path, time in times.items() if path != lost)
    assert list((tmp_path / "out").glob(".oinf-*")) == []


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    whole = BatchRun(graph(tmp_path), tuple(written(tmp_path)), str(tmp_path / "whole"), part_rows=10)
    run_local(whole, 1)
    program = textwrap.dedent(f"""
        import os, signal
        from openinfer.scale import BatchRun, run_local
        run = BatchRun({whole.graph!r}, {whole.inputs!r}, {str(tmp_path / "killed")!r}, part_rows=10)
        run_local(run, 1, lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if done >= 30 else None)
    """)
    ended = subprocess.run([sys.executable, "-c", program], check=False, env=os.environ)
    assert ended.returncode == -9
    killed = BatchRun(whole.graph, whole.inputs, str(tmp_path / "killed"), part_rows=10)
    assert len(results(tmp_path / "killed")) == 3
    assert run_local(killed, 2).done_before == 3
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


def test_the_folder_of_another_run_is_left_alone(tmp_path: Path) -> None:
    files = tuple(written(tmp_path))
    run_local(BatchRun(graph(tmp_path), files, str(tmp_path / "out")))
    for other in (
        BatchRun(graph(tmp_path), files[:1], str(tmp_path / "out")),
        BatchRun(graph(tmp_path), files, str(tmp_path / "out"), keep=("id",)),
        BatchRun(graph(tmp_path, ROWS.replace("add(x, x)", "mul(x, x)")), files, str(tmp_path / "out")),
    ):
        with pytest.raises(BatchError, match="E909"):
            run_local(other)


def test_rows_of_different_lengths_are_steps_of_their_own(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"x": pa.array([[1.0], [1.0, 2.0, 3.0], []], pa.list_(pa.float32()))}), tmp_path / "in.parquet"
    )
    run_local(BatchRun(graph(tmp_path, SINGLE), (str(tmp_path / "in.parquet"),), str(tmp_path / "out")))
    (part,) = (tmp_path / "out").glob("part-*")
    found = pq.read_table(part).to_pydict()
    assert found == {"y": [1.0, 6.0, 0.0], "z": [[2.0], [2.0, 4.0, 6.0], []]}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": pa.array([1.0]), "k": pa.array([1])}, "elements"),
        ({"x": pa.array([[1.0, 2.0]])}, "no column 'k'"),
        ({"x": pa.array([[1.0, 2.0], None]), "k": pa.array([1, 2])}, "without a value"),
        ({"x": pa.array([[1.0, None]]), "k": pa.array([1])}, "without a value"),
        ({"x": pa.array([[1.0, 2.0, 3.0]]), "k": pa.array([1])}, "lengths"),
        ({"x": pa.array([[[1.0], [2.0]]]), "k": pa.array([1])}, "lengths"),
        ({"x": pa.array(["ab"]), "k": pa.array([1])}, "no tensor"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    done = openinfer(
        "batch", graph(tmp_path), "-i", str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out"), "--json"
    )
    (problem,) = json.loads(done.out)["diagnostics"]
    assert (done.status, problem["code"]) == (1, "E909")
    assert said in problem["message"]
    assert results(tmp_path / "out") == {}


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_bytes(b"no parquet")
    for pattern in ("in.parquet", "none-*.parquet"):
        done = openinfer("batch", graph(tmp_path), "-i", str(tmp_path / pattern), "-o", str(tmp_path / "out"))
        assert (done.status, "E909" in done.err) == (1, True)


def test_a_graph_with_a_state_is_refused(tmp_path: Path) -> None:
    text = "dynamic { x: f32; } persistent { n: f32; } block entry { op add(n, x) >> n; return n; }"
    with pytest.raises(BatchError, match="E909"):
        Predictor(graph(tmp_path, text))


def test_columns_are_not_copied_where_they_need_not_be() -> None:
    values = pa.array(np.arange(12, dtype=np.float32))
    column = pa.chunked_array([pa.FixedSizeListArray.from_arrays(values, 3)])
    found = rows_of("x", column, (3,))
    assert found.tolist() == np.arange(12).reshape(4, 3).tolist()
    assert np.shares_memory(found, values.to_numpy())
    assert rows_of("x", pa.chunked_array([pa.FixedSizeListArray.from_arrays(values, 6)]), (2, 3)).shape == (2, 2, 3)
    sliced = pa.chunked_array([pa.FixedSizeListArray.from_arrays(values, 3).slice(1, 2)])
    assert rows_of("x", sliced, (3,)).tolist() == [[3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"x": 3, "k": [1]}, "E909"),
        ({"x": "ab", "k": [1, 2]}, "E909"),
        ({"x": np.float32(1), "k": [1]}, "E909"),
        ({"x": [[1.0, 2.0]], "k": [1, 2]}, "E909"),
        ({"x": [[[1.0], [2.0, 3.0]]], "k": [1]}, "E303"),
        ({"x": [[1.0, None]], "k": [1]}, "E304"),
    ],
)
def test_columns_that_are_no_rows_are_refused(tmp_path: Path, columns: Any, code: str) -> None:
    with pytest.raises(OpenInferError, match=code):
        Predictor(graph(tmp_path))(columns)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    files = written(tmp_path, files=1)
    with pytest.raises(BatchError, match="cannot be kept"):
        run_local(BatchRun(graph(tmp_path), tuple(files), str(tmp_path / "out"), columns={}, keep=("y",)))
    table = pq.read_table(files[0])
    pq.write_table(pa.Table.from_arrays([table["x"], table["x"], table["k"]], ["x", "x", "k"]), files[0])
    with pytest.raises(BatchError, match="2 columns 'x'"):
        run_local(BatchRun(graph(tmp_path), tuple(files), str(tmp_path / "out")))


def test_a_run_that_wrote_nothing_does_not_keep_others_out(tmp_path: Path) -> None:
    """An error in the data says in which file; once that is mended, the same command goes."""
    bad = tmp_path / "in.parquet"
    pq.write_table(pa.table({"x": [[1.0, 2.0], None], "k": [1, 2]}), bad)
    run = BatchRun(graph(tmp_path), (str(bad),), str(tmp_path / "out"))
    with pytest.raises(BatchError, match="without a value") as caught:
        run_local(run)
    assert caught.value.diagnostics[0].facts()["file"] == str(bad)
    assert caught.value.diagnostics[0].notes == (f"in row group 0 of {bad}",)
    pq.write_table(pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "k": [1, 2]}), bad)
    assert run_local(run).rows == 2
    with pytest.raises(BatchError, match="device"):
        run_local(replace(run, device="generic"))
    (tmp_path / "other" / "run.json").mkdir(parents=True)
    with pytest.raises(BatchError, match="cannot be read"):
        run_local(replace(run, output=str(tmp_path / "other")))
