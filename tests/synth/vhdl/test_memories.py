"""What a device has memories for: weights that do not fit are outside, and state and arena that do not are refused."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.synth.vhdl.test_circuits import LAYERS, layers

from openinfer import DeviceArch, DeviceError, ExecutionError, GraphError, ModelLoader, Simulator, Synthesizer, graph
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.run.circuit import CircuitModule


def small_fpga(initialised: int, others: int = 4) -> DeviceArch:
    """An FPGA with a few blocks for weights, and larger ones for what changes."""
    blocks = [
        {"kind": "ebr", "count": initialised, "bits": 4096, "width": 16},
        {
            "kind": "spram",
            "count": others,
            "bits": 65536,
            "width": 16,
            "is_initialised": False,
            "has_write_port": False,
        },
    ]
    own = {"multipliers": 4, "multiplier_bits": 16, "blocks": blocks}
    return DeviceArch.from_json(json.dumps({"device": {"type": "fpga", "api": "vhdl", "name": "small"}, "fpga": own}))


@pytest.mark.parametrize(("blocks", "elements", "lanes"), [(2, False, True), (4, True, False), (1, True, True)])
def test_weights_that_do_not_fit_are_outside(blocks: int, elements: bool, lanes: bool, tmp_path: Path) -> None:
    """The circuit waits for them, and computes the same."""
    model = layers(tmp_path)
    plan = Synthesizer(small_fpga(blocks), name="layers").synthesize(model, graph(LAYERS))
    facts = plan.facts()["circuit"]
    assert facts["outside"]["elements"] is elements
    assert facts["outside"]["lanes"] is lanes
    module, simulator = plan.build(), Simulator(model).make_executor(graph(LAYERS))
    assert isinstance(module, CircuitModule)
    rng = np.random.default_rng(5)
    x = rng.integers(-128, 128, (1, 3, 5, 6)).astype(np.int8)
    given: dict[str, Array] = {"x": x, "k": np.array(7, np.int32)}
    for machine in (module, simulator):
        machine.insert(given)
        machine.run_step()
    for name in ("y", "d", "s"):
        np.testing.assert_array_equal(module.fetch(name), simulator.fetch(name))
    assert module.cycles > facts["clocks"]


@pytest.mark.parametrize("block", [{"bits": 8, "width": 16}, {"bits": 4096, "width": 2**31 - 1}])
def test_a_block_that_holds_less_than_a_word_is_refused(block: dict[str, int]) -> None:
    own = {"blocks": [{"kind": "ebr", "count": 1, **block}]}
    with pytest.raises(DeviceError, match=r"E802.*a width of at most"):
        DeviceArch.from_json({"device": {"type": "fpga", "api": "vhdl"}, "fpga": own})


def test_a_project_with_weights_outside_is_analysed_with_all_its_buses(tmp_path: Path) -> None:
    plan = Synthesizer(small_fpga(1), name="layers").synthesize(layers(tmp_path), graph(LAYERS))
    plan.emit(tmp_path / "out")
    words = (tmp_path / "out" / "weights" / "layers.hex").read_text().split()
    assert 4 * len(words) == plan.facts()["circuit"]["outside"]["bytes"]
    ended = subprocess.run(["make", "-s"], cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:2000]


def test_a_state_that_does_not_fit_is_refused_and_named() -> None:
    text = """
    dynamic { x: i32[4]; }
    volatile { y: i32[4]; }
    persistent { small: i32[4] @init(0); seen(t): i32[4] @table @fixed(t=4000); }
    block entry { cache.write x >> seen[1]; op add(x, small) >> y; return y; }
    """
    with pytest.raises(GraphError, match="E801") as refused:
        Synthesizer(small_fpga(4, 8)).synthesize(None, graph(text))
    said = str(refused.value)
    assert "'seen' is the largest of the state" in said
    assert "seen(t): i32[4]" in said, "the message shows where"
    Synthesizer("generic-fpga").synthesize(None, graph(text))
    Synthesizer(small_fpga(4, 8)).synthesize(None, graph(text.replace("t=4000", "t=40")))


def test_products_for_which_there_are_no_multipliers_are_in_logic() -> None:
    """Those of the lanes, of kernels and of indices; a wide one takes several multipliers."""
    text = """
    dynamic { x: i64[2]; y: i16[2]; a: i32; b: i32; }
    volatile { z: i64[2]; }
    persistent { n: i64; }
    block entry { op mul(x, x) >> z; op mul(y, y) >> y; cache.increment a*b n; return z, y; }
    """
    for count, in_logic in ((20, True), (21, False)):
        own = {"multipliers": count, "multiplier_bits": 16}
        device = DeviceArch.from_json({"device": {"type": "fpga", "api": "vhdl"}, "fpga": own})
        plan = Synthesizer(device, name="net").synthesize(None, graph(text))
        texts = [str(text) for path, text in plan.files().items() if path.startswith("rtl/net")]
        assert any("oi_product" in text for text in texts) is in_logic
        module = plan.build()
        z, y = module(x=np.array([-(2**63), 3]), y=np.array([-300, 2], np.int16), a=np.int32(-(2**31)), b=np.int32(3))
        assert (z.tolist(), y.tolist(), int(module.fetch("n"))) == ([0, 9], [24464, 4], -3 * 2**31)


def test_an_index_chooses_one_of_many_weights(tmp_path: Path) -> None:
    """Weights with gaps between them, more than expressions can be nested."""
    text = """
    constant { W(l): i8[2] @pattern("w.{l}"); }
    dynamic { n: i32; }
    block entry { y = op add(W[n], W[n]); return y; }
    """
    there = [at for at in range(1500) if at % 7 != 3]
    save_file(tmp_path / "many.oinf", {f"w.{at}": np.array([at % 60, -(at % 50)], np.int8) for at in there})
    module = Synthesizer("generic-fpga").synthesize(ModelLoader.open(tmp_path / "many.oinf"), graph(text)).build()
    for at in (0, 1, 749, 750, 1498):
        np.testing.assert_array_equal(module(n=np.int32(at)), [2 * (at % 60), -2 * (at % 50)])
    with pytest.raises(ExecutionError, match="E209"):
        module(n=np.int32(3))
