"""``openinfer run``: inputs of every form, steps, outputs that are all there or not at all."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import Done, openinfer

from openinfer.oinf import save_file

DOUBLE = """
sizes { T <= 6; }
dynamic { x: f32[T, 2]; m: f32[T]; }
volatile { y: f32[T, 2]; z: f32[T]; }
persistent { n: i32 @init(0); }
block entry { op add(x, x) >> y; op neg(m) >> z; cache.increment n; return y; }
"""


@pytest.fixture
def double(tmp_path: Path) -> str:
    return written(tmp_path, DOUBLE)


def written(folder: Path, text: str, name: str = "g.oig") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def identity(folder: Path, dtype: str, shape: str = "[6]") -> str:
    """A graph that gives back its input."""
    text = f"dynamic {{ x: {dtype}{shape}; }} volatile {{ y: {dtype}{shape}; }}"
    return written(folder, text + " block entry { transfer x >> y; return y; }", f"{dtype}.oig")


def ran(*arguments: str) -> Done:
    done = openinfer("run", *arguments)
    assert (done.status, done.err) == (0, ""), done.err
    return done


def refused(code: str, *arguments: str) -> str:
    done = openinfer("run", *arguments)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"error[{code}]: "), done.err
    return done.err


def results(folder: Path, graph: str, *arguments: str, output: str = "y") -> Any:
    """What a run leaves in an .npy file."""
    path = folder / "result.npy"
    brackets = "[]" if output.endswith("[]") else ""
    ran(graph, *arguments, "-o", f"{output.removesuffix('[]')}=@{path}{brackets}")
    return np.load(path, allow_pickle=False)


# --- generated inputs -------------------------------------------------------------------------------------------------


def test_zeros_ones_and_arange(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32", "[2, 3]")
    for rule, wanted in (("zeros", np.zeros((2, 3))), ("ones", np.ones((2, 3))), ("arange", np.arange(6))):
        found = results(tmp_path, graph, "-i", f"x={rule}")
        assert found.dtype == np.float32
        assert np.array_equal(found, wanted.reshape(2, 3))


def test_random_inputs_are_those_of_numpy_for_the_seed_and_the_step(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32")
    normal = [np.random.default_rng([7, step]).standard_normal(6).astype(np.float32) for step in range(3)]
    assert np.array_equal(results(tmp_path, graph, "-i", "x=randn:7", "--steps", "3", output="y[]"), normal)
    uniform = np.random.default_rng([7, 0]).random(6).astype(np.float32)
    assert np.array_equal(results(tmp_path, graph, "-i", "x=uniform:7"), uniform)
    integers = np.random.default_rng([7, 1]).integers(-3, 3, 6)
    found = results(tmp_path, graph, "-i", "x=randint:7:-3..3", "--steps", "2")
    assert np.array_equal(found, integers)


def test_random_integers_take_all_values_of_an_integer_type_and_no_others(tmp_path: Path) -> None:
    for dtype, wanted in (("i4", set(range(-8, 8))), ("t1", {-1, 1}), ("t2", {-1, 0, 1}), ("bool", {0, 1})):
        found = results(tmp_path, identity(tmp_path, dtype, "[400]"), "-i", "x=randint:1")
        assert set(found.tolist()) == wanted
    wide = results(tmp_path, identity(tmp_path, "u64", "[400]"), "-i", "x=randint:1")
    assert wide.max() > 1 << 63


def test_a_rule_that_the_type_cannot_follow_is_refused(tmp_path: Path) -> None:
    assert "--input x=randint:3" in refused("E307", identity(tmp_path, "i32"), "-i", "x=randn:3")
    assert "x=randint:3:0..10" in refused("E307", identity(tmp_path, "f32"), "-i", "x=randint:3")
    refused("E302", identity(tmp_path, "i4"), "-i", "x=randint:3:0..9")
    refused("E302", identity(tmp_path, "f32"), "-i", "x=randint:3:0..100000000000000000")
    refused("E302", identity(tmp_path, "f16", "[5000]"), "-i", "x=arange")
    refused("E302", identity(tmp_path, "i8", "[200]"), "-i", "x=arange")
    refused("E302", identity(tmp_path, "t1"), "-i", "x=zeros")


def test_a_generated_input_has_the_sizes_of_the_others_or_the_given_ones_or_the_bounds(
    tmp_path: Path, double: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    assert results(tmp_path, double, "-i", f"x=@{tmp_path}/x.npy", "-i", "m=ones", output="z").shape == (4,)
    assert results(tmp_path, double, "-i", "x=ones", "-i", "m=[1, 2, 3]").shape == (3, 2)
    assert results(tmp_path, double, "-i", "x=ones", "-i", "m=ones", "--size", "T=5").shape == (5, 2)
    assert results(tmp_path, double, "-i", "x=ones", "-i", "m=ones").shape == (6, 2)


# --- values on the command line ---------------------------------------------------------------------------------------


def test_a_number_fills_the_input_and_a_list_has_its_own_shape(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32", "[2, 2]")
    assert results(tmp_path, graph, "-i", "x=1.5").tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert results(tmp_path, graph, "-i", "x=[[1, 2], [3, 4.5]]").tolist() == [[1, 2], [3, 4.5]]
    assert results(tmp_path, graph, "-i", "x=-inf").tolist() == [[-np.inf] * 2] * 2
    assert results(tmp_path, identity(tmp_path, "bool", ""), "-i", "x=true").item() is True
    refused("E308", graph, "-i", "x=[1, 2]")
    refused("E303", graph, "-i", "x=[[1, 2], [3]]")
    refused("E302", identity(tmp_path, "u8"), "-i", "x=300")
    refused("E302", identity(tmp_path, "u8"), "-i", "x=1.5")
    refused("E304", graph, "-i", 'x=[["a", "b"], ["c", "d"]]')


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "=1",
        "x=",
        "x=rand",
        "x=randn",
        "x=randn:",
        "x=randn:-1",
        "x=randn:1:0..2",
        "x=uniform:1:0..2",
        "x=randint:1:3..3",
        "x=@",
        'x={"a": 1}',
        'x="text"',
        "x=null",
        "x=1e999",
        "x=[1e999]",
        "x=" + "[" * 50_000,
        "x=" + "9" * 5_000,
    ],
)
def test_a_malformed_input_is_wrong_usage(tmp_path: Path, text: str) -> None:
    done = openinfer("run", identity(tmp_path, "f32"), "-i", text)
    assert (done.status, done.out) == (2, "")
    assert "Invalid value for --input" in done.err


def test_an_input_given_twice_is_wrong_usage(double: str) -> None:
    assert openinfer("run", double, "-i", "x=ones", "-i", "x=ones").status == 2


def test_all_unknown_and_missing_inputs_are_reported_together(double: str) -> None:
    errors = refused("E201", double, "-i", "X=ones", "-i", "n=1", "-i", "qqq=1")
    assert "there is no input 'X'" in errors
    assert "'n' is persistent, not an input" in errors
    assert "for example: --input m=randn:0" in errors
    assert errors.count("error[E508]") == 2


# --- inputs from files ------------------------------------------------------------------------------------------------


def test_a_file_is_the_same_in_every_step_unless_slices_are_asked_for(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32")
    values = np.arange(18, dtype=np.float32).reshape(3, 6)
    np.save(tmp_path / "one.npy", values[0])
    np.save(tmp_path / "all.npy", values)
    same = results(tmp_path, graph, "-i", f"x=@{tmp_path}/one.npy", "--steps", "2", output="y[]")
    assert np.array_equal(same, [values[0]] * 2)
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{tmp_path}/all.npy[]", output="y[]"), values)
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{tmp_path}/all.npy[]", "--steps", "2"), values[1])
    assert "for 3 steps, not for 4" in refused("E508", graph, "-i", f"x=@{tmp_path}/all.npy[]", "--steps", "4")
    refused("E308", graph, "-i", f"x=@{tmp_path}/all.npy")


def test_slices_of_nothing_and_of_a_number_are_refused(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32")
    np.save(tmp_path / "none.npy", np.zeros((0, 6), np.float32))
    np.save(tmp_path / "number.npy", np.float32(1))
    refused("E508", graph, "-i", f"x=@{tmp_path}/none.npy[]")
    refused("E303", graph, "-i", f"x=@{tmp_path}/number.npy[]")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_by_key_by_name_or_with_a_single_array(tmp_path: Path, save: Any) -> None:
    graph = identity(tmp_path, "f32")
    one, other = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    several, single = tmp_path / "several.npz", tmp_path / "single.npz"
    save(several, x=one, other=other, steps=np.stack([one, other]))
    save(single, whatever=other)
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{several}"), one)
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{several}:other"), other)
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{several}:steps[]", output="y[]"), [one, other])
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{single}"), other)
    assert "did you mean 'other'?" in refused("E722", graph, "-i", f"x=@{several}:othr")


def test_fortran_order_and_other_byte_orders_are_read(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32", "[2, 3]")
    values = np.arange(12, dtype=">f4").reshape(2, 2, 3)
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    assert np.array_equal(results(tmp_path, graph, "-i", f"x=@{tmp_path}/a.npy[]", output="y[]"), values)


def test_arrays_convert_only_where_no_value_changes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full(6, 0.1))
    assert "astype" in refused("E302", identity(tmp_path, "f32"), "-i", f"x=@{tmp_path}/a.npy")
    np.save(tmp_path / "a.npy", np.full(6, 3.0))
    assert results(tmp_path, identity(tmp_path, "i32"), "-i", f"x=@{tmp_path}/a.npy").tolist() == [3] * 6


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_what_the_graph_returns_is_shown_with_statistics(double: str) -> None:
    done = ran(double, "-i", "x=3", "-i", "m=1")
    assert done.out.splitlines()[0] == "y: f32[6, 2] = [6, 6, 6, 6, 6, ...]  min 6, max 6, mean 6"
    assert done.out.splitlines()[1].startswith("1 step in ")


def test_without_returned_names_the_written_volatile_variables_are_shown(tmp_path: Path) -> None:
    text = DOUBLE.replace("return y", "assign t: f32[T]; op neg(z) >> t; return")
    done = ran(written(tmp_path, text), "-i", "x=3", "-i", "m=nan")
    assert [line.split(":")[0] for line in done.out.splitlines()[:-1]] == ["y", "z"]
    assert done.out.splitlines()[1].endswith("nan 6")


def test_a_file_holds_the_last_step_or_all_of_them(tmp_path: Path, double: str) -> None:
    archive, single = tmp_path / "a.npz", tmp_path / "y.npy"
    places = [f"y=@{single}", f"n=@{archive}:count[]", f"z=@{archive}", "n"]
    options = [option for place in places for option in ("-o", place)]
    done = ran(double, "-i", "x=randn:1", "-i", "m=arange", "--steps", "3", *options)
    assert [line.split(":")[0] for line in done.out.splitlines()] == ["y", "n", "z", "n", done.out.splitlines()[-1]]
    last = np.random.default_rng([1, 2]).standard_normal((6, 2)).astype(np.float32)
    assert np.array_equal(np.load(single), last + last)
    with np.load(archive) as found:
        assert {name: found[name].tolist() for name in found} == {
            "count": [1, 2, 3],
            "z": [0, -1, -2, -3, -4, -5],
        }


def test_the_same_run_writes_the_same_bytes(tmp_path: Path, double: str) -> None:
    written_bytes = []
    for name in ("a.npz", "b.npz"):
        ran(double, "-i", "x=randn:1", "-i", "m=ones", "-o", f"y=@{tmp_path}/{name}", "-o", f"z=@{tmp_path}/{name}")
        written_bytes.append((tmp_path / name).read_bytes())
    assert written_bytes[0] == written_bytes[1]


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        *(("f8", "f4"), ("bf16", "f4"), ("f16", "f2"), ("f64", "f8")),
        *(("i1", "i1"), ("i2", "i1"), ("i4", "i1"), ("u1", "u1"), ("u2", "u1"), ("u4", "u1")),
        *(("t1", "i1"), ("t2", "i1"), ("bool", "?"), ("u64", "u8"), ("i64", "i8")),
    ],
)
def test_every_dtype_comes_back_from_a_file_as_it_was(tmp_path: Path, dtype: str, stored: str) -> None:
    graph = identity(tmp_path, dtype, "[5, 7]")
    rule = "randn:2" if dtype in ("f8", "bf16", "f16", "f64") else "randint:2"
    for name in ("y.npy", "y.npz"):
        path = tmp_path / name
        first = json.loads(ran(graph, "--json", "-i", f"x={rule}", "-o", f"y=@{path}").out)["outputs"][0]
        loaded = np.load(path, allow_pickle=False)
        array = loaded if name == "y.npy" else loaded["y"]
        assert (array.dtype, array.shape) == (np.dtype(stored), (5, 7))
        second = json.loads(ran(graph, "--json", "-i", f"x=@{path}").out)["outputs"][0]
        assert second["digest"] == first["digest"]
        assert second["dtype"] == dtype


def test_scalars_and_empty_arrays_are_written(tmp_path: Path) -> None:
    assert results(tmp_path, identity(tmp_path, "f32", ""), "-i", "x=2").shape == ()
    assert results(tmp_path, identity(tmp_path, "f32", "[3, 0]"), "-i", "x=ones").shape == (3, 0)


def test_stacking_values_whose_shapes_differ_is_refused(tmp_path: Path) -> None:
    text = """
    dynamic { x: f32[2]; }
    persistent { n: i32 @init(0); K(t): f32[2] @table; }
    block entry { cache.write x >> K[n]; cache.increment n; return; }
    """
    graph = written(tmp_path, text)
    place = tmp_path / "k.npy"
    assert "cannot be stacked" in refused("E308", graph, "-i", "x=1", "--steps", "2", "-o", f"K=@{place}[]")
    assert not place.exists()
    assert results(tmp_path, graph, "-i", "x=1", "--steps", "2", output="K").shape == (2, 2)


@pytest.mark.parametrize(
    "places",
    [
        ["y=y.npy"],
        ["y=@y.txt"],
        ["=@y.npy"],
        ["y=@a.npy", "z=@a.npy"],
        ["y=@a.npz:k", "z=@a.npz:k"],
        ["y=@a.npy", "z=@./a.npy"],
    ],
)
def test_a_malformed_output_is_wrong_usage(double: str, places: list[str]) -> None:
    options = [option for place in places for option in ("-o", place)]
    done = openinfer("run", double, "-i", "x=1", "-i", "m=1", *options)
    assert (done.status, "Invalid value for --output" in done.err) == (2, True)


def test_a_state_does_not_replace_an_output(tmp_path: Path, double: str) -> None:
    for name in ("a.npy", "a.npz"):
        path = f"{tmp_path}/{name}"
        done = openinfer("run", double, "-i", "x=1", "-i", "m=1", "-o", f"y=@{path}", "--save-state", path)
        assert (done.status, "two things are to be written" in done.err.replace("\n", " ")) == (2, True)


def test_a_lack_of_memory_is_a_typed_error(tmp_path: Path) -> None:
    graph = identity(tmp_path, "f32", "[1099511627776]")
    for rule in ("zeros", "arange", "randn:1", "1.5"):
        refused("E511", graph, "-i", f"x={rule}")
    refused("E511", identity(tmp_path, "f64", "[140737488355328]"), "-i", "x=zeros")


def test_outputs_that_cannot_be_are_refused_before_anything_runs(tmp_path: Path, double: str) -> None:
    endless = ["-i", "x=1", "-i", "m=1", "--steps", "1000000000"]
    assert "did you mean 'y'?" in refused("E201", double, *endless, "-o", "yy=@y.npy")
    assert "folder" in refused("E731", double, *endless, "-o", f"y=@{tmp_path}/missing/y.npy")
    refused("E731", double, *endless, "--save-state", str(tmp_path))
    save_file(tmp_path / "m.oinf", {"W.0": np.ones(2, np.float32)})
    family = """
    volatile { W(l): f32[2] @pattern("W.{l}"); y: f32[2]; }
    block entry { op neg(W[0]) >> y; return; }
    """
    refused(
        "E502", written(tmp_path, family, "f.oig"), "-m", str(tmp_path / "m.oinf"), "-o", "W", "--steps", "99999999"
    )


FULL_AFTER_TWO = """
dynamic { x: f32[2]; }
volatile { y: f32[2]; }
persistent { n: i32 @init(0); K(t): f32[2] @table @fixed(t=2); }
block entry { op neg(x) >> y; cache.write x >> K[n]; cache.increment n; return y; }
"""


def test_a_step_that_fails_leaves_no_file_and_no_change(tmp_path: Path) -> None:
    graph = written(tmp_path, FULL_AFTER_TWO)
    (tmp_path / "old.npy").write_bytes(b"old")
    before = sorted(tmp_path.iterdir())
    files = ["-o", f"y=@{tmp_path}/old.npy", "-o", f"K=@{tmp_path}/new.npz", "--save-state", f"{tmp_path}/state"]
    refused("E507", graph, "-i", "x=1", "--steps", "3", *files)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "old.npy").read_bytes() == b"old"
    ran(graph, "-i", "x=1", "--steps", "2", *files)
    assert np.load(tmp_path / "old.npy").tolist() == [-1, -1]


# --- state, schedulers, budgets ---------------------------------------------------------------------------------------


def test_saved_state_continues_where_a_run_stopped(tmp_path: Path, double: str) -> None:
    state = str(tmp_path / "state.oinf")
    inputs = ["-i", "x=1", "-i", "m=1"]
    ran(double, *inputs, "--steps", "2", "--save-state", state)
    found = results(
        tmp_path, double, *inputs, "--steps", "3", "--load-state", state, "--save-state", state, output="n[]"
    )
    assert found.tolist() == [3, 4, 5]
    assert ran(double, *inputs, "--load-state", state, "-o", "n").out.startswith("n: i32 = 6 ")
    refused("E510", written(tmp_path, FULL_AFTER_TWO, "o.oig"), "-i", "x=1", "--load-state", state)
    refused("E701", double, *inputs, "--load-state", str(tmp_path / "missing"))


def test_the_threaded_scheduler_gives_the_same_values(tmp_path: Path) -> None:
    text = """
    dynamic { x: f32[4]; }
    volatile { a: f32[4]; b: f32[4]; y: f32[4]; }
    block entry { transfer x >> a; yield a; op neg(x) >> b; await a; op add(a, b) >> y; return y; }
    block worker { await a; op mul(a, a) >> a; yield a; }
    """
    graph = written(tmp_path, text)
    one, other = (
        results(tmp_path, graph, "-i", "x=randn:1", "--scheduler", scheduler)
        for scheduler in ("sequential", "threaded")
    )
    assert np.array_equal(one, other)
    assert openinfer("run", graph, "-i", "x=1", "--scheduler", "random").status == 2


def test_a_node_budget_ends_a_step(double: str) -> None:
    refused("E410", double, "-i", "x=1", "-i", "m=1", "--node-budget", "2")
    ran(double, "-i", "x=1", "-i", "m=1", "--node-budget", "100")
    assert openinfer("run", double, "-i", "x=1", "-i", "m=1", "--node-budget", "0").status == 2


def test_a_model_and_strictness_are_passed_on(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.arange(3, dtype=np.float32)}, {"B": 3})
    text = "dynamic { x: f32[B]; } volatile { w: f32[B]; y: f32[B] @layout(a); }"
    graph = written(tmp_path, text + " block entry { op add(x, w) >> y; return y; }")
    model = ["--model", str(tmp_path / "m.oinf")]
    assert results(tmp_path, graph, *model, "-i", "x=1").tolist() == [1, 2, 3]
    refused("E204", graph, *model, "-i", "x=1", "--strict")
    refused("E208", graph, "-i", "x=1")
    refused("E701", graph, "-m", str(tmp_path / "no.oinf"), "-i", "x=1")
    assert openinfer("run", graph, *model, "-i", "x=1", "--size", "B").status == 2


# --- for programs -----------------------------------------------------------------------------------------------------


def test_json_has_statistics_times_and_node_counts(tmp_path: Path, double: str) -> None:
    path = tmp_path / "y.npy"
    done = ran(double, "--json", "-i", "x=[[1, 2], [3, 4]]", "-i", "m=1", "--steps", "3", "-o", f"y=@{path}", "-o", "z")
    facts = json.loads(done.out)
    assert (facts["ok"], facts["steps"], facts["nodes"], len(facts["step_seconds"])) == (True, 3, 12, 3)
    assert facts["seconds"] == pytest.approx(sum(facts["step_seconds"]))
    assert (facts["bounds"], facts["sizes"], facts["state"]) == ({"T": 6}, {}, None)
    y, z = facts["outputs"]
    assert (y["name"], y["dtype"], y["shape"], y["file"]) == ("y", "f32", [2, 2], str(path))
    assert (y["min"], y["max"], y["mean"], y["nan"], y["inf"]) == (2.0, 8.0, 5.0, 0, 0)
    assert "file" not in z


def test_json_of_values_that_json_lacks_is_still_json(double: str) -> None:
    facts = json.loads(ran(double, "--json", "-i", "x=nan", "-i", "m=inf", "-o", "y", "-o", "z").out)
    y, z = facts["outputs"]
    assert (y["nan"], y["min"], z["inf"], z["min"]) == (12, None, 6, "-inf")


def test_nodes_are_not_counted_where_nothing_is_recorded(double: str) -> None:
    done = ran(double, "--json", "-i", "x=1", "-i", "m=1", "--trace-level", "off")
    assert json.loads(done.out)["nodes"] is None


def test_errors_are_json_where_json_is_asked_for(double: str) -> None:
    done = openinfer("run", double, "--json", "-i", "x=1")
    assert (done.status, done.err) == (1, "")
    facts = json.loads(done.out)
    assert (facts["ok"], facts["diagnostics"][0]["code"]) == (False, "E508")


def test_a_graph_can_come_from_standard_input() -> None:
    command = [sys.executable, "-m", "openinfer", "run", "-", "-i", "x=1", "-i", "m=1"]
    done = subprocess.run(command, input=DOUBLE, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("y: f32[6, 2] = [2, 2, 2, 2, 2, ...]")
    assert done.stderr == ""
