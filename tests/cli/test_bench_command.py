"""``openinfer bench``: what it prints, what it writes, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import Done, openinfer
from tests.synth.small_models import SMALL_MODELS

from openinfer import DeviceArch, ModelLoader, Synthesizer, load_graph
from openinfer.cli.bench import TableOrder, advice, ordered
from openinfer.synth.program.cost import Cost
from openinfer.synth.report.profile import KernelProfile, NodePlace, Profile, Times
from openinfer.synth.report.roofline import Roofline

ROOT = Path(__file__).parents[2]
MLP = (str(ROOT / "examples" / "graphs" / "mlp.oig"), "--model", str(ROOT / "res" / "models" / "mlp_regression.oinf"))
FEW = ("--steps", "2", "--warmup", "1")


@pytest.fixture(autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path_factory.getbasetemp() / "profiled"))


@pytest.fixture
def decoder(tmp_path: Path) -> tuple[str, ...]:
    """A graph with a loop over layers, tables and a counter."""
    small = SMALL_MODELS["decoder"]
    small.saved(tmp_path)
    (tmp_path / "decoder.oig").write_text(small.text)
    return str(tmp_path / "decoder.oig"), "--model", str(tmp_path / "small.oinf")


def bench(*arguments: str) -> Done:
    done = openinfer("bench", *arguments)
    assert (done.status, done.err) == (0, ""), done.err
    return done


def facts_of(*arguments: str) -> Any:
    return json.loads(bench(*arguments, *FEW, "--json", "-").out)


def rows_of(out: str) -> list[list[str]]:
    """The lines of the table, as words."""
    lines = out.split("\n\n")[1].splitlines()
    assert lines[0].split()[:3] == ["kernel", "nodes", "calls"]
    return [line.split() for line in lines[1:]]


# --- what is measured -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["host", "generic"])
def test_every_kernel_of_the_plan_is_in_the_facts(device: str, decoder: tuple[str, ...]) -> None:
    for graph, option, model in (MLP, decoder):
        arch = DeviceArch.detect() if device == "host" else DeviceArch.named(device)
        name = Path(graph).stem
        plan = Synthesizer.from_arch(arch, name=name).synthesize(ModelLoader.open(model), load_graph(graph)).facts()
        found = facts_of(graph, option, model, "--device", device)
        assert found["ok"]
        assert (found["name"], found["isa"]) == (name, arch.cpu.isa)
        assert sorted(one["name"] for one in found["kernels"]) == sorted(one["name"] for one in plan["functions"])
        wanted = sorted((one["nodes"][0]["index"], one["calls"], one["operations"]) for one in plan["kernels"])
        assert sorted((one["nodes"][0]["index"], one["calls"]) for one in found["calls"]) == [one[:2] for one in wanted]
        assert sum(one["operations"] for one in found["calls"]) <= sum(calls * each for _, calls, each in wanted)
        for rows in (found["kernels"], found["calls"]):
            assert all(time > 0 for one in rows for time in one["seconds"]["all"])
            for number, whole in enumerate(found["timed_seconds"]["all"]):
                assert sum(one["seconds"]["all"][number] for one in rows) <= whole
        assert all(one["bound"] in ("compute", "memory") and one["roofline_seconds"] > 0 for one in found["kernels"])
        assert len(found["untimed_seconds"]["all"]) == len(found["timed_seconds"]["all"]) == 2


def test_facts_can_go_into_a_file_and_the_table_is_printed_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    done = bench(*MLP, *FEW, "--json", str(path))
    facts = json.loads(path.read_text())
    assert {row[0] for row in rows_of(done.out)} == {one["name"].removeprefix("mlp_") for one in facts["kernels"]}


def test_sizes_and_inputs_are_those_of_the_options(tmp_path: Path) -> None:
    graph = tmp_path / "g.oig"
    graph.write_text(
        "sizes { T <= 64; } dynamic { x: f32[T]; } volatile { y: f32[T]; } block entry { op add(x, x) >> y; return y; }"
    )
    np.save(tmp_path / "x.npy", np.ones((3, 5), np.float32))

    def operations(*options: str) -> int:
        (one,) = facts_of(str(graph), *options)["kernels"]
        return int(one["operations"])

    assert operations() == 64
    assert operations("--size", "T=7") == 7
    assert operations("--input", f"x=@{tmp_path / 'x.npy'}[]") == 5


def test_a_state_that_was_saved_is_where_steps_begin(tmp_path: Path, decoder: tuple[str, ...]) -> None:
    state = str(tmp_path / "state.oinf")
    done = openinfer("run", *decoder, "--input", "token=3", "--steps", "5", "--save-state", state)
    assert done.status == 0, done.err
    fresh, later = (
        sum(one["operations"] for one in facts_of(*decoder, *more)["kernels"]) for more in ((), ("--load-state", state))
    )
    assert fresh < later


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_summary_says_how_fast_steps_and_the_machine_are(decoder: tuple[str, ...]) -> None:
    lines = bench(*decoder, *FEW).out.splitlines()
    heads = [line.split()[0] for line in lines[1:6]]
    assert lines[0].startswith("decoder for ")
    assert heads == ["roofline", "step", "timed", "between", "state"]
    assert "in the median of 2" in lines[2]
    assert lines[-1].startswith("Look at ")
    assert not any(line.startswith("  state") for line in bench(*MLP, *FEW).out.splitlines())


def test_rows_are_kernels_or_with_an_option_the_places_that_call_them(decoder: tuple[str, ...]) -> None:
    facts = facts_of(*decoder)
    kernels = rows_of(bench(*decoder, *FEW).out)
    nodes = rows_of(bench(*decoder, *FEW, "--by-node", "--sort", "node").out)
    assert len(kernels) == len(facts["kernels"]) < len(nodes) == len(facts["calls"])
    assert [row[1].rstrip(",") for row in nodes] == [str(one["nodes"][0]["index"]) for one in facts["calls"]]


def test_only_as_many_rows_are_shown_as_wanted_and_the_rest_is_counted(decoder: tuple[str, ...]) -> None:
    every = len(facts_of(*decoder)["kernels"])
    out = bench(*decoder, *FEW, "--top", "2").out
    *rows, rest = rows_of(out)
    assert len(rows) == 2
    assert rest[:3] == ["and", str(every - 2), "more,"]


def test_nodes_are_shown_with_their_lines() -> None:
    out = bench(*MLP, *FEW).out
    text = Path(MLP[0]).read_text().splitlines()
    shown = [line.strip() for line in out.splitlines() if line.startswith("    line ")]
    assert shown
    for line in shown:
        number, said = line.removeprefix("line ").split(": ", 1)
        assert said in text[int(number) - 1]


def made(name: str, seconds: float, share: float, node: int, operations: int = 0, threads: int = 2) -> KernelProfile:
    roofline = Roofline(1e9, 1e9, threads=2, nbytes=4096)
    cost, places = Cost(operations, 0, 0), (NodePlace(node, "op relu(x) >> y", 7),)
    return KernelProfile(f"net_{name}", places, 1, threads, cost, Times((seconds,)), (share,), roofline)


def test_rows_have_an_order() -> None:
    rows = [made("a", 1.0, 0.3, 2), made("b", 3.0, 0.2, 1), made("c", 2.0, 0.1, 0)]
    names = {order: "".join(one.name[-1] for one in ordered(rows, order)) for order in TableOrder}
    assert names == {TableOrder.TIME: "bca", TableOrder.SHARE: "abc", TableOrder.NODE: "cba"}


def test_the_advice_names_a_kernel_and_says_why() -> None:
    kernels = made("k0_a", 5e-3, 0.5, 0, operations=1_000_000, threads=1), made("k1_b", 1e-3, 0.1, 1)
    whole = Times((1e-2,))
    profile = Profile("net", "mine", "generic", kernels[0].roofline, kernels, kernels, whole, whole, False)
    assert advice(profile) == (
        "Look at k0_a (line 7) first: it takes 50.0 % of a step, 5 ms, where its arithmetic takes 1 ms, and runs on 1 "
        "of 2 threads; at its roofline a step would be 4 ms shorter, more than any other kernel can give."
    )
    done = (made("k0_a", 1e-3, 0.5, 0, operations=2_000_000),)
    profile = Profile("net", "mine", "generic", kernels[0].roofline, done, done, whole, whole, False)
    assert advice(profile).startswith("Every kernel is as fast as this machine allows")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "said"), [("cortex-m4", "does not run on this machine"), ("", "no target")])
def test_a_device_that_this_machine_cannot_run_is_refused(tmp_path: Path, device: str, said: str) -> None:
    (tmp_path / "other.json").write_text('{"device": {"type": "gpu", "api": "metal"}}')
    done = openinfer("bench", *MLP, "--device", device or str(tmp_path / "other.json"))
    assert (done.status, done.out) == (1, "")
    assert "E801" in done.err
    assert said in done.err


def test_wrong_inputs_are_refused_before_anything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path / "empty"))
    for options, code in (
        (("--input", "z=ones"), "E201"),
        (("--input", "x=[1, 2]"), "E308"),
        (("--size", "Q=3"), "E208"),
        (("--model", str(tmp_path / "none.oinf")), "E701"),
    ):
        done = openinfer("bench", *MLP, *options, *FEW, "--json", "-")
        assert done.status == 1
        facts = json.loads(done.out)
        assert not facts["ok"]
        assert [one["code"] for one in facts["diagnostics"]] == [code]
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(("option", "value", "code"), [("--input", "token=99", "E313"), ("--load-state", "no", "E701")])
def test_steps_that_fail_or_cannot_begin_are_errors(
    decoder: tuple[str, ...], option: str, value: str, code: str
) -> None:
    done = openinfer("bench", *decoder, *FEW, option, value)
    assert (done.status, done.out) == (1, "")
    assert code in done.err


@pytest.mark.parametrize("options", [("--steps", "0"), ("--warmup", "-1"), ("--sort", "size"), ("--top", "0")])
def test_options_that_make_no_sense_are_wrong_usage(options: tuple[str, ...]) -> None:
    done = openinfer("bench", *MLP, *options)
    assert (done.status, done.out) == (2, "")


def test_facts_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    done = openinfer("bench", *MLP, *FEW, "--json", str(tmp_path / "none" / "x.json"))
    assert done.status == 1
    assert "E731" in done.err
