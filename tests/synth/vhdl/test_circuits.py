"""Circuits in GHDL: ops, programs and projects give what the simulator gives; what has floats is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.synth.test_names import GRAPH, SLOTS, identifiers, tensor_names
from tests.synth.vhdl.kernels import SHAPE
from tests.synth.vhdl.suite import op_failures, program_failure

from openinfer import GraphError, ModelLoader, Simulator, Synthesizer, graph
from openinfer.dtypes import DTYPES
from openinfer.ir.values import quote
from openinfer.loops.build import Builder, load
from openinfer.loops.ir import Binary, Buffer, Const, Kernel, ScalarVar
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.report.fabric import CircuitFootprint
from openinfer.synth.run.circuit import CircuitModule
from openinfer.synth.targets.project import Golden
from openinfer.synth.targets.vhdl.code import MemoryPlace
from openinfer.synth.targets.vhdl.expressions import Expressions, WireVariable
from openinfer.synth.targets.vhdl.ranges import WireType
from openinfer.synth.targets.vhdl.unit import KernelUnit, UnitCall

SMALL = """
dynamic { x: i32[4, 8]; w: i32[8, 3]; n: i4[4]; }
volatile { y: i32[4, 3]; a: i4[4]; }
persistent { k: i32[4] @init(3); }
block entry { op matmul(x, w) >> y; op relu(y) >> y; op add(n, n) >> a; op add(k, 1) >> k; return y, a; }
"""


def test_ops_in_a_circuit_agree_with_the_simulator() -> None:
    assert list(op_failures(["add", "cumsum", "mod"], 1)) == []


@pytest.mark.parametrize("seed", [1, 5])
def test_a_random_program_agrees_in_a_circuit(seed: int) -> None:
    """Tables, branches, called blocks; a copy of as many bytes as a size that may be unknown says."""
    assert program_failure(seed) is None


def test_a_circuit_keeps_its_state_over_steps_and_counts_clocks() -> None:
    module = Synthesizer("generic-fpga").synthesize(None, graph(SMALL)).build()
    x, w = np.arange(32, dtype=np.int32).reshape(4, 8) - 9, np.arange(24, dtype=np.int32).reshape(8, 3) - 5
    for step in (1, 2):
        y, a = module(x=x, w=w, n=np.array([1, -3, 7, 2], np.int8))
        np.testing.assert_array_equal(y, np.maximum(x @ w, 0))
        assert a.tolist() == [2, -6, -2, 4]
        assert module.fetch("k").tolist() == [3 + step] * 4
    assert isinstance(module, CircuitModule)
    assert module.cycles > 0


def test_a_loop_that_starts_beyond_its_end_does_not_run() -> None:
    """The index holds its start, which may be larger than all that it counts to."""
    text = """
    sizes { T <= 4; U <= 2; }
    dynamic { x: i8[T]; u: i8[U]; }
    persistent { n: i32; }
    block entry { loop l (i in T..U) { cache.increment n; } return x, u; }
    """
    module = Synthesizer("generic-fpga").synthesize(None, graph(text)).build()
    for t, u, count in ((4, 2, 0), (0, 2, 2), (4, 0, 2), (1, 2, 3)):
        module(x=np.zeros(t, np.int8), u=np.zeros(u, np.int8))
        assert int(module.fetch("n")) == count


def test_a_step_takes_the_clocks_that_the_plan_says() -> None:
    """Kernels that could have failed, of which each asks whether it did; loops that run, and that do not."""
    text = """
    sizes { T <= 3; }
    dynamic { x: i32[4]; z: i32[T]; }
    volatile { y: i32[4]; }
    block entry { op mod(x, 7) >> y; op div(x, x) >> x; op add(z, z) >> z; return x, y, z; }
    """
    for body, sizes in ((text, range(4)), (text.replace("T <= 3", "T := 3"), (3,))):
        plan = Synthesizer("generic-fpga").synthesize(None, graph(body))
        module, clocks = plan.build(), plan.facts()["circuit"]["clocks"]
        assert isinstance(module, CircuitModule)
        measured = []
        for size in sizes:
            module(x=np.arange(1, 5, dtype=np.int32), z=np.zeros(size, np.int32))
            measured.append(module.cycles)
        assert clocks == (measured[0] if len(measured) == 1 else [min(measured), max(measured)])


def test_the_same_graph_gives_the_same_files() -> None:
    """Also in processes that hash strings in other ways, and so iterate sets of names in other orders."""
    text = (
        "dynamic { x: i8[2, 3, 4]; } volatile { y: i32[2, 3, 4]; } block entry { op cast(x, to=i32) >> y; return y; }"
    )
    made = f"Synthesizer('ice40-up5k').synthesize(None, graph({text!r})).files()"
    found = {
        subprocess.run(
            [sys.executable, "-c", f"from openinfer import Synthesizer, graph; print(sorted({made}.items()))"],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, check=True,
        ).stdout for seed in range(3)
    }  # fmt: skip
    assert len(found) == 1


def test_addresses_are_driven_whatever_operands_are_called() -> None:
    """The names of ports with responses of memories end in ``_q``; here, that of an address does."""
    given, result = Buffer("q", DTYPES["i32"], (4,)), Buffer("y", DTYPES["i32"], (4,))
    builder = Builder()
    with builder.loop(4) as i:
        builder.store(result, (i,), load(given, i))
    unit = KernelUnit("copy", Kernel("copy", (given,), (result,), builder.body), ("ram", "ram"), SHAPE)
    for state in (1, 2):
        places = (MemoryPlace("ram", f"to_unsigned({64 * state}, 32)"), MemoryPlace("ram", "to_unsigned(0, 32)"))
        unit.calls.append(UnitCall(state, places))
    assert [port for port, _ in unit.driven_ports()] == ["base_0_q"]


def test_floats_are_refused_at_their_node_and_can_be_moved() -> None:
    text = "dynamic {{ x: f32[4]; }} volatile {{ y: f32[4]; }} block entry {{ op {}(x) >> y; return y; }}"
    with pytest.raises(GraphError, match="E805") as refused:
        Synthesizer("generic-fpga").synthesize(None, graph(text.format("exp")))
    assert "quantize" in str(refused.value)
    moved = graph(text.replace("op {}(x)", "transfer x").format())
    module = Synthesizer("generic-fpga").synthesize(None, moved).build()
    np.testing.assert_array_equal(module(x=np.array([1.5, -0.0, np.inf, 3], np.float32)), [1.5, -0.0, np.inf, 3])


def test_of_kernels_that_are_joined_the_node_with_floats_is_refused() -> None:
    text = """dynamic { x: i8[4]; } volatile { y: f32[4]; }
    block entry { op add(x, 1) >> x;
        op mul(x, x) >> x;
        op cast(x, to=f32) >> y; return y; }"""
    with pytest.raises(GraphError, match="E805") as refused:
        Synthesizer("generic-fpga").synthesize(None, graph(text))
    assert "cast computes with floats" in str(refused.value)
    assert ":4:9" in str(refused.value)


def test_memory_that_addresses_do_not_reach_is_refused() -> None:
    text = "sizes {{ T <= {}; }} dynamic {{ x: i8[T, T]; }} block entry {{ op neg(x) >> x; return x; }}"
    with pytest.raises(GraphError, match=r"E801.*at most 2,147,483,647 bytes") as refused:
        Synthesizer("generic-fpga").synthesize(None, graph(text.format(100000)))
    assert "reduce the sizes" in str(refused.value)
    Synthesizer("generic-fpga").synthesize(None, graph(text.format(20000)))


def test_make_sim_runs_golden_steps_through_the_driver(tmp_path: Path) -> None:
    """The state is the initial one before the first step; a wrong value is found."""
    text = SMALL.replace("return y, a", "return y, a, k")
    x, w = np.arange(32, dtype=np.int32).reshape(4, 8) - 9, np.arange(24, dtype=np.int32).reshape(8, 3) - 5
    given: dict[str, Array] = {"x": x, "w": w, "n": np.array([1, -3, 7, 2], np.int8)}
    found: dict[str, Array] = {"y": np.maximum(x @ w, 0), "a": np.array([2, -6, -2, 4], np.int8)}
    steps = [Golden(given, found | {"k": np.full(4, last, np.int32)}) for last in (4, 5)]
    plan = Synthesizer("generic-fpga", name="net").synthesize(None, graph(text))
    for golden, said in ((steps, "40 of 40"), ((steps[0], steps[0]), "36 of 40")):
        plan.emit(tmp_path, golden)
        command = ["make", "-s", "CC=gcc -Werror", "sim"]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert said in ended.stdout, ended.stdout + ended.stderr
        assert (ended.returncode == 0) is (golden is steps)


LAYERS = """
dynamic { x: i8[1, 3, 5, 6]; k: i32; }
volatile { h: i8[1, 6, 5, 6]; d: i32[1, 6, 5, 6]; y: i32[1, 5]; s: i32[6]; }
constant { W: i8[6, 3, 3, 3] @ref("W"); b: i32[6] @ref("b"); f: i32[6, 1, 1] @ref("f"); D: i8[6, 1, 2, 2] @ref("D");
           L: i8[5, 180] @ref("L"); }
block entry {
    assign sum: i32[1, 6, 5, 6];
    assign flat: i8[1, 180];
    op conv2d(x, W, b, pads=1, acc=i32) >> sum;
    op mul(sum, f) >> sum;
    op shr(sum, bits=9) >> sum;
    op clamp(sum, min=0, max=127) >> sum;
    op cast(sum, to=i8) >> h;
    op conv2d(h, D, pads=[0, 0, 1, 1], groups=6, acc=i32) >> d;
    op flatten(h) >> flat;
    op linear(flat, L, acc=i32) >> y;
    op add(y, k) >> y;
    op sum_axis(d, axes=[0, 2, 3]) >> s;
    return y, d, s;
}
"""


def layers(folder: Path) -> ModelLoader:
    rng = np.random.default_rng(4)
    shapes = {"W": (6, 3, 3, 3), "D": (6, 1, 2, 2), "L": (5, 180)}
    tensors: dict[str, Array] = {name: rng.integers(-128, 128, shape).astype(np.int8) for name, shape in shapes.items()}
    tensors["b"] = rng.integers(-5000, 5000, 6).astype(np.int32)
    tensors["f"] = rng.integers(100, 900, (6, 1, 1)).astype(np.int32)
    save_file(folder / "layers.oinf", tensors)
    return ModelLoader.open(folder / "layers.oinf")


@pytest.mark.parametrize("device", ["ice40-up5k", "generic-fpga"])
def test_layers_on_lanes_agree_and_take_the_clocks_that_the_plan_says(device: str, tmp_path: Path) -> None:
    """More features than lanes, groups, padding, sums read while others are computed, a memory with one port or two."""
    model = layers(tmp_path)
    plan = Synthesizer(device, name="layers").synthesize(model, graph(LAYERS))
    facts = plan.facts()["circuit"]
    assert facts["lanes"]["count"] > 1
    module, simulator = plan.build(), Simulator(model).make_executor(graph(LAYERS))
    assert isinstance(module, CircuitModule)
    rng = np.random.default_rng(5)
    for k in (0, 7):
        given: dict[str, Array] = {
            "x": rng.integers(-128, 128, (1, 3, 5, 6)).astype(np.int8),
            "k": np.array(k, np.int32),
        }
        for machine in (module, simulator):
            machine.insert(given)
            machine.run_step()
        for name in ("y", "d", "s"):
            np.testing.assert_array_equal(module.fetch(name), simulator.fetch(name))
        assert module.cycles == facts["clocks"]


@pytest.mark.parametrize("adapter", ["", "spi", "wishbone", "axi4lite"])
def test_a_circuit_behind_another_bus_does_the_same(adapter: str, tmp_path: Path) -> None:
    """The commands of the test bench are the same for every bus: two steps, with the state between them."""
    text = "dynamic { x: i8[4]; } volatile { y: i8[4]; } persistent { k: i8[4] @init(1); }"
    text += "block entry { op add(k, x) >> k; op relu(k) >> y; return y; }"
    plan = Synthesizer("generic-fpga", name="net").synthesize(None, graph(text))
    plan.emit(tmp_path)
    assert subprocess.run(["make", "-s"], cwd=tmp_path, check=False).returncode == 0
    place = plan.placed.input_offsets[plan.placed.program.inputs["x"]]
    state = plan.placed.state_bytes
    at = f"{-(-state // 8) * 8 * (1 + plan.placed.can_tear) + place:08x}"
    address = "".join(reversed([at[i : i + 2] for i in range(0, 8, 2)]))
    lines = ["w 01 00000000", "w 02 01010101"]
    lines += [f"w 01 {address}", "w 02 02fd0901", "w 00 01", "g"] * 2
    lines += ["r 00 1", "w 01 00000000", "r 02 4", "r 0f 1"]
    name = f"net_{adapter}_tb" if adapter else "net_tb"
    for command in (["-e"], ["-r"]):
        ended = subprocess.run(
            ["ghdl", *command, "--std=08", "--workdir=build", name, *["--ieee-asserts=disable"] * (command == ["-r"])],
            cwd=tmp_path, capture_output=True, text=True, input="\n".join(lines) + "\n", check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["00", "05FB1303", "4F"]


@pytest.mark.parametrize("start", [0, 60])
def test_hostile_names_stay_inside_comments_and_identifiers(start: int, tmp_path: Path) -> None:
    """Names of graphs, scopes, tensors and projects."""
    names = dict(zip(SLOTS, identifiers(500)[start : start + len(SLOTS)], strict=True))
    tensors, scope = tensor_names(40)[start // 8 : start // 8 + 3], "--\nend entity;\r\v\f\x85\u2028 \u00e9 */ \\\\"
    values = [np.eye(2, dtype=np.int32), np.ones(2, np.int32), np.ones(2, np.int32)]
    save_file(tmp_path / "model.oinf", dict(zip(tensors, values, strict=True)))
    quoted = dict(zip(("tensor", "other", "tensor2"), map(quote, tensors), strict=True))
    text = GRAPH.replace("f32", "i32").format(**names, **quoted, scope=quote(scope))
    project = "signal" if start else "ram_addr"
    plan = Synthesizer("generic-fpga", name=project).synthesize(ModelLoader.open(tmp_path / "model.oinf"), graph(text))
    plan.emit(tmp_path / "out")
    ended = subprocess.run(["make", "-s"], cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:2000]


def test_quotients_by_constants_can_be_mapped(tmp_path: Path) -> None:
    """GHDL does not compare constants when it makes a netlist: signs of constants are written out."""
    files = Synthesizer("generic-fpga", name="net").synthesize(layers(tmp_path), graph(LAYERS)).files()
    texts = [str(text) for path, text in files.items() if "_flatten" in path]
    assert any("rest" in text for text in texts), "something is divided"
    assert not any(word in text for text in texts for word in ("oi_abs(to_signed", ") < 0) /="))


def test_an_expression_that_is_always_one_number_is_that_number() -> None:
    """As the divisors of resize are: the larger of 6 and 1."""
    expressions = Expressions()
    i = ScalarVar("i", DTYPES["i32"])
    expressions.declare(i, WireVariable("i", WireType("signed", 4)), (0, 5))
    largest = Binary("max", Const(6, i.dtype), Const(1, i.dtype))
    assert expressions.value(largest).text == "to_signed(6, 4)"
    assert expressions.value(Binary("min", i, Const(9, i.dtype))).text != "to_signed(9, 5)"
    assert expressions.value(Binary("min", Const(-2, i.dtype), i)).text.startswith("to_signed(-2, ")


def test_netlists_grow_with_the_program_and_not_with_its_square(tmp_path: Path) -> None:
    """Hundreds of states and of variables, each of which is set in one or two states."""
    sizes = []
    for count in (5, 10):
        body = "branch adds; cache.write x >> A[n]; cache.increment n; " * count
        text = f"""
        dynamic {{ x: i32; }}
        persistent {{ n: i64; A(i): i32 @table @fixed(i=400); }}
        block entry {{ {body} return x; }}
        block adds {{ cache.increment 2 n; return; }}
        """
        folder = tmp_path / str(count)
        Synthesizer("generic-fpga", name="net").synthesize(None, graph(text)).emit(folder)
        subprocess.run(["make", "-s", "build/net.v"], cwd=folder, check=True, capture_output=True)
        sizes.append((folder / "build" / "net.v").stat().st_size)
    assert sizes[1] < 3 * sizes[0]


def test_a_constant_of_one_bit_can_be_mapped() -> None:
    """Whether it is positive is found bit by bit: GHDL does not compare constants when it makes a netlist."""
    text = "dynamic { x: t1[8]; } volatile { y: t1[8]; } block entry { op fill(x, value=-1) >> y; return y; }"
    files = Synthesizer("generic-fpga", name="net").synthesize(None, graph(text)).files()
    texts = [str(one) for path, one in files.items() if "_fill" in path]
    assert texts
    assert not any("> 0" in one for one in texts)


def test_what_a_circuit_takes_is_measured_by_the_tools_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Synthesizer("ice40-up5k").synthesize(None, graph(SMALL))
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "yosys" else found(name))
    measured = plan.footprint()
    assert isinstance(measured, CircuitFootprint)
    assert measured.clocks == plan.facts()["circuit"]["clocks"]
    assert measured.unmeasured == ("cells and memories are not measured: there is no yosys",)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert plan.footprint() == CircuitFootprint(unmeasured=("nothing is measured: there is no ghdl",))
