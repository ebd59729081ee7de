"""If, Loop and Scan of ONNX as branches and loops of the language, next to ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from tests.importing.models import imported, model, node, require_agreement
from tests.synth.flags import USUAL

from openinfer import ModelLoader, OpenInferError, Simulator, Synthesizer, load_graph
from openinfer.errors import ImportingError

X = np.array([0.5, -1.0, 2.0, 0.25], np.float32)


def net(signature: str, body: str, opset: int = 17) -> Any:
    """A model in ONNX's own text."""
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> net {signature} <float one = {{1}}, float half = {{0.5}},'
        f" float ten = {{10}}, int64 two = {{2}}, bool yes = {{1}}> {{ {body} }}"
    )


REPEATED = """y, rows = Loop (n, , x) <body = b (int64 i, bool go, float[4] s) => (bool goes, float[4] t, float r) {
    goes = Identity (go) k = Cast <to = 1> (i) u = Add (s, k) t = Mul (u, half) r = ReduceSum <keepdims = 0> (u) }>"""
STOPPED = """y, rows = Loop (n, c, x) <body = b (int64 i, bool go, float[4] s) => (bool goes, float[4] t, float[4] r) {
    t = Add (s, one) m = ReduceMax <keepdims = 0> (t) goes = Less (m, ten) r = Mul (s, half) }>"""
WHILE = """y = Loop (, c, x) <body = b (int64 i, bool go, float[4] s) => (bool goes, float[4] t) {
    t = Add (s, one) m = ReduceMax <keepdims = 0> (t) goes = Less (m, ten) }>"""


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_number_of_iterations_that_data_gives_is_the_end_of_a_loop(tmp_path: Path, count: int) -> None:
    made = net("(float[4] x, int64 n) => (float[4] y)", REPEATED)
    found = require_agreement(made, tmp_path, {"x": X, "n": np.array(count)})
    assert "in 0..n)" in found
    assert "branch" not in found


def test_what_such_a_loop_collects_needs_a_bound_and_has_a_count(tmp_path: Path) -> None:
    made = net("(float[4] x, int64 n) => (float[4] y, float[rows] rows)", REPEATED)
    with pytest.raises(ImportingError, match=r"how many values it collects depends on data") as refused:
        imported(made, tmp_path)
    assert "--size 'rows[0]<=BOUND'" in str(refused.value)
    found = imported(made, tmp_path, sizes={"rows[0]": "<=6"})
    with ModelLoader.open(found.model) as weights:
        executor = Simulator(weights).make_executor(load_graph(found.graph))
        executor.insert(x=X, n=np.array(3))
        executor.run_step()
        assert executor.fetch(found.outputs["rows.count"]) == 3
        np.testing.assert_allclose(executor.fetch("rows"), [1.75, 4.875, 10.4375, 0, 0, 0], rtol=1e-6)
        executor.insert(x=X, n=np.array(7))
        with pytest.raises(OpenInferError, match=r"out of bounds|outside"):
            executor.run_step()


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("count", [4, 30])
def test_a_loop_ends_where_its_condition_does(tmp_path: Path, start: bool, count: int) -> None:
    made = net("(float[4] x, int64 n, bool c) => (float[4] y)", STOPPED)
    found = require_agreement(made, tmp_path, {"x": X, "n": np.array(count), "c": np.array(start)})
    assert "branch goes_on iteration ended;" in found


def test_a_loop_without_a_number_of_iterations_needs_a_bound(tmp_path: Path) -> None:
    made = net("(float[4] x, bool c) => (float[4] y)", WHILE)
    with pytest.raises(ImportingError, match=r"how often it runs depends on data"):
        imported(made, tmp_path)
    feeds = {"x": X, "c": np.array(True)}
    require_agreement(made, tmp_path, feeds, sizes={"y[iterations]": "<=8"})
    found = imported(made, tmp_path, sizes={"y[iterations]": "<=7"})  # 2, 3, ... 10 are eight
    with ModelLoader.open(found.model) as weights:
        graph = load_graph(found.graph)
        for executor in (
            Simulator(weights).make_executor(graph),
            Synthesizer().synthesize(weights, graph).build(flags=USUAL),
        ):
            executor.insert(**feeds)
            with pytest.raises(OpenInferError, match=r"out of bounds|outside"):
                executor.run_step()


NESTED = """y = Loop (n, , x) <body = b (int64 i, bool go, float[4] s) => (bool goes, float[4] t) {
    goes = Identity (go)
    e = Mod (i, two) zero = Constant <value = int64 {0}> () even = Equal (e, zero)
    t = If (even) <then_branch = d () => (float[4] v) {
            z = Constant <value = float[4] {0, 0, 0, 0}> ()
            v, last = Loop (two, c, z, s) <body = f (int64 j, bool on, float[4] p, float[4] w)
                                            => (bool ons, float[4] q, float[4] o) {
                k = Add (i, j) f = Cast <to = 1> (k) r = Mul (x, f) q0 = Add (p, r) q = Add (q0, s) o = Identity (w)
                m = ReduceMax <keepdims = 0> (q) ons = Less (m, ten) }> },
        else_branch = g () => (float[4] v) { w = Gather (x, i) v = Add (s, w) }> }>"""


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("cond", ["", "c"])
def test_bodies_inside_bodies_read_what_is_around_them(tmp_path: Path, start: bool, cond: str) -> None:
    """An inner loop begins anew in every outer iteration, also what it begins with zero."""
    outer = NESTED.replace("(n, , x)", f"(n, {cond}, x)")
    made = net("(float[4] x, int64 n, bool c) => (float[4] y)", outer)
    feeds = {"x": X, "n": np.array(4), "c": np.array(start)}
    text = require_agreement(made, tmp_path, feeds)
    assert "i_now" in text


SWAPPED = """a, b = Loop (n, , x, y) <body = f (int64 i, bool go, float[4] s, float[4] t)
    => (bool go, float[4] t, float[4] u) { u = Add (s, one) }>"""


def test_values_that_change_places_are_carried_at_once(tmp_path: Path) -> None:
    made = net("(float[4] x, float[4] y, int64 n) => (float[4] a, float[4] b)", SWAPPED)
    require_agreement(made, tmp_path, {"x": X, "y": X * 3, "n": np.array(3)})


@pytest.mark.parametrize("direction", [0, 1])
def test_a_scan_goes_over_a_dynamic_size_both_ways(tmp_path: Path, direction: int) -> None:
    scan = f"""y, rows = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{direction}],
        scan_output_axes = [1], scan_output_directions = [{direction}], body = b (float[2] s, float[2] e)
        => (float[2] t, float[2] r) {{ u = Mul (s, half) t = Add (u, e) r = Sub (t, one) }}> (z, x)"""
    made = net("(float[2, T] x, float[2] z) => (float[2] y, float[2, T] rows)", scan)
    feeds = {"x": np.arange(10, dtype=np.float32).reshape(2, 5), "z": X[:2]}
    assert "in 0..T)" in require_agreement(made, tmp_path, feeds, sizes={"T": "<=6"})


GROWING = """z = Loop (n, yes, x) <body = b (int64 i, bool go, float[k] s) => (bool goes, float[m] t) {
    goes = Identity (go) t = Concat <axis = 0> (s, x) }>"""


def test_a_value_that_grows_is_refused_unless_its_iterations_are_known(tmp_path: Path) -> None:
    made = net("(float[4] x, int64 n) => (float[m] z)", GROWING)
    with pytest.raises(ImportingError, match=r"a value it carries changes from f32\[4\] to f32\[8\]"):
        imported(made, tmp_path)
    require_agreement(made, tmp_path, {"x": X}, fixed={"n": np.array(3)})


def test_branches_and_loops_agree_in_c(tmp_path: Path) -> None:
    made = net(
        "(float[4] x, int64 n, bool c) => (float[4] y, float[4] e)",
        NESTED + STOPPED.replace("y, rows", "e, seen").replace("body = b", "body = h"),
    )
    feeds = {"x": X, "n": np.array(5), "c": np.array(True)}
    require_agreement(made, tmp_path, feeds)
    found = imported(made, tmp_path)
    with ModelLoader.open(found.model) as weights:
        graph = load_graph(found.graph)
        machines = (
            Simulator(weights).make_executor(graph),
            Synthesizer().synthesize(weights, graph).build(flags=USUAL),
        )
        for executor in machines:
            executor.insert(**feeds)
            executor.run_step()
        for name in ("y", "e"):
            np.testing.assert_allclose(machines[1].fetch(name), machines[0].fetch(name), rtol=1e-6)


COUNTED = """start = Less (zero, size)
    last, y, w, rows = Loop (, start, zero, x, weight)
        <body = b (int64 i, bool go, int64 at, float[2] s, float[2] v)
        => (bool goes, int64 next, float[2] t, float[2] v, float[2] r) {
        e = Gather (x2, at) m = Mul (e, v) t = Add (s, m) next = Add (at, step) goes = Less (next, size)
        r = Neg (t) }>"""


def test_a_counter_and_a_limit_are_a_number_of_iterations(tmp_path: Path) -> None:
    """As exporters write a recurrent layer of a dynamic length; weights that are handed on are constants."""
    signature = "(float[2] x, float[T, 2] x2) => (int64 last, float[2] y, float[T, 2] rows)"
    made = net(signature, "shape = Shape (x2) size = Gather (shape, zero) " + COUNTED)
    weights = {"zero": np.array(0), "step": np.array(1), "weight": np.array([0.5, 2.0], np.float32)}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    feeds = {"x": X[:2], "x2": np.arange(10, dtype=np.float32).reshape(5, 2)}
    found = require_agreement(made, tmp_path, feeds, sizes={"T": "<=6"})
    assert "in 0..T)" in found
    assert "branch" not in found
    assert "weight: f32[2];" in found.partition("block entry")[0]


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_a_recurrent_layer_goes_backwards_over_sequences_of_different_lengths(tmp_path: Path, kind: str) -> None:
    gates = {"GRU": 3, "LSTM": 4}[kind]
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((2, gates * 4, 3)).astype(np.float32),
        "r": rng.standard_normal((2, gates * 4, 4)).astype(np.float32),
    }
    made = model(
        [node(kind, ["x", "w", "r", "", "lengths"], ["y", "h"], hidden_size=4, direction="bidirectional")],
        {"x": ("f32", ["T", 2, 3]), "lengths": ("i32", [2])},
        {"y": ("f32", None), "h": ("f32", None)},
        weights,
    )
    feeds = {"x": rng.standard_normal((5, 2, 3)).astype(np.float32), "lengths": np.array([5, 2], np.int32)}
    require_agreement(made, tmp_path, feeds, sizes={"T": "<=6"})


@pytest.mark.parametrize("length", [6, 7])
def test_padding_that_is_the_same_for_all_lengths_needs_no_fixed_size(tmp_path: Path, length: int) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"}
    made = model([node("MaxPool", ["x"], ["y"], **attributes)], {"x": ("f32", [1, 2, "T"])}, {"y": ("f32", None)})
    x = np.random.default_rng(2).standard_normal((1, 2, length)).astype(np.float32)
    require_agreement(made, tmp_path, {"x": x}, sizes={"T": "<=9"})


def test_the_first_of_a_dynamic_sequence_can_be_squeezed(tmp_path: Path) -> None:
    made = net("(float[T, 4] x) => (float[4] y)", "f = Slice (x, z, o, z) y = Squeeze (f, z)")
    made.graph.initializer.extend([onnx.numpy_helper.from_array(np.array([v]), k) for k, v in (("z", 0), ("o", 1))])
    require_agreement(made, tmp_path, {"x": X.reshape(1, 4).repeat(3, 0)}, sizes={"T": "<=9"})


def test_a_sequence_that_is_reversed_as_a_whole_is_flipped(tmp_path: Path) -> None:
    body = "s = Shape <start = 0, end = 1> (x) y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, s)"
    made = net("(float[T, 1] x) => (float[T, 1] y)", body)
    assert "op flip" in require_agreement(made, tmp_path, {"x": X.reshape(4, 1)}, sizes={"T": "<=9"})


WINDOWS = """y = Loop (three, , z) <body = b (int64 i, bool go, float[2] s) => (bool go, float[2] t) {
    i1 = Unsqueeze (i, axis) a = Mul (i1, two) b1 = Add (a, two) e = Min (b1, eight)
    w = Slice (x, a, e, axis) p = Squeeze (a) q = Squeeze (e) k = Range (p, q, o) f = Cast <to = 1> (k)
    m = Mul (w, f) t = Add (s, m) }>"""


def test_a_slice_that_moves_with_the_iteration_is_read_where_it_is(tmp_path: Path) -> None:
    made = net("(float[8] x, float[2] z) => (float[2] y)", WINDOWS)
    numbers = {"axis": [0], "eight": [8], "three": 3, "o": 1}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(v), k) for k, v in numbers.items())
    found = require_agreement(made, tmp_path, {"x": np.arange(8, dtype=np.float32), "z": X[:2]})
    assert "loop iterations (i in 0..3)" in found


def test_a_slice_up_to_where_data_says_has_a_bound_and_a_count(tmp_path: Path) -> None:
    made = net("(float[4, 8] x, int64[1] n) => (float[4, m] y)", "y = Slice (x, zero, n, axis)")
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.array([v]), k) for k, v in (("zero", 0), ("axis", 1)))
    with pytest.raises(ImportingError, match=r"the shape of its result depends on data"):
        imported(made, tmp_path)
    found = imported(made, tmp_path, sizes={"y[1]": "<=5"})
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    with ModelLoader.open(found.model) as weights:
        executor = Simulator(weights).make_executor(load_graph(found.graph))
        for given, count in ((3, 3), (0, 0), (-4, 4)):
            executor.insert(x=x, n=np.array([given]))
            executor.run_step()
            assert executor.fetch(found.outputs["y.count"]) == count
            np.testing.assert_array_equal(executor.fetch("y"), np.where(np.arange(5) < count, x[:, :5], 0))
        executor.insert(x=x, n=np.array([6]))
        with pytest.raises(OpenInferError, match=r"out of bounds|outside"):
            executor.run_step()


def test_what_only_the_last_iteration_says_may_begin_as_anything(tmp_path: Path) -> None:
    body = """y, k = Loop (two, , x, none) <body = b (int64 i, bool go, float[4] s, int64 old)
        => (bool go, float[4] t, float[4] last) { t = Add (s, one) last = Mul (s, half) }>"""
    made = net("(float[4] x) => (float[4] y, float[4] k)", body)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "none"))
    found = imported(made, tmp_path)
    with ModelLoader.open(found.model) as weights:
        executor = Simulator(weights).make_executor(load_graph(found.graph))
        executor.insert(x=X)
        executor.run_step()
        np.testing.assert_allclose(executor.fetch("k"), (X + 1) / 2)


@pytest.mark.parametrize(
    ("body", "reason", "advice"),
    [
        ("s = SequenceConstruct (x, x) y = ConcatFromSequence <axis = 0> (s)", "no sequences of tensors", "stacks"),
        ("r = RandomNormalLike (x) y = Add (x, r)", "random|gives the s", "make it an input"),
    ],
)
def test_what_the_language_cannot_say_is_refused_with_a_reason_and_a_remedy(
    tmp_path: Path, body: str, reason: str, advice: str
) -> None:
    with pytest.raises(ImportingError, match=reason) as refused:
        imported(net("(float[4] x) => (float[m] y)", body), tmp_path)
    assert advice in str(refused.value.diagnostics[0].help)


def test_a_slice_from_the_last_to_the_first_is_a_flip(tmp_path: Path) -> None:
    made = net("(float[T, 4] x) => (float[T, 2] y)", "y = Slice (x, starts, ends, axes, steps)")
    numbers = {"starts": [-1, 1], "ends": [-(2**63), 3], "axes": [0, 1], "steps": [-1, 1]}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(v), k) for k, v in numbers.items())
    found = require_agreement(made, tmp_path, {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}, sizes={"T": "<=9"})
    assert "op flip(x, axes=[0])" in found
