"""What a graph says about its nodes changes the plan: without it kernels are fused, with it the ledger says why not."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import openinfer
from tests.synth.both_ways import agree, planned
from tests.synth.flags import QUICK

from openinfer import DeviceArch, graph
from openinfer.synth.pipeline import Synthesizer

HEAD = "dynamic { x: f32[4]; } volatile { y: f32[4]; z: f32[4]; } "


@dataclass(frozen=True)
class Case:
    """A graph whose producer and consumer are fused, and the same graph with a constraint."""

    free: str
    bound: str
    producer: int
    consumer: int
    reason: str


def entry(text: str, temporaries: str = "", blocks: str = "", constraints: str = "") -> str:
    return f"{HEAD} block entry {constraints} {{ {temporaries} {text} return y; }} {blocks}"


def two(between: str = "", first: str = "", second: str = "") -> str:
    return entry(f"op neg(x) >> z{first}; {between} op abs(z) >> y{second};")


def three(between: str = "", middle: str = "") -> str:
    text = f"op neg(x) >> a; {between} op square(x) >> b{middle}; op add(a, b) >> y;"
    return entry(text, "assign a: f32[4]; assign b: f32[4];")


def in_loop(between: str = "") -> str:
    return entry(
        f"loop l (i in 0..2) {{ op neg(x) >> a; {between} op abs(a) >> b; op add(y, b) >> y; }}",
        "assign a: f32[4]; assign b: f32[4];",
    )


def in_block(constraints: str = "") -> str:
    text = f"block rest {constraints} {{ op neg(x) >> z; op abs(z) >> y; op neg(y) >> z; return; }}"
    return entry("branch rest;", blocks=text)


CASES = {
    "barrier": Case(two(), two("barrier;"), 0, 2, "a barrier lies between them"),
    "dep": Case(two(), two("dep after(neg) before(abs);"), 0, 2, "a dep keeps them apart"),
    "dep in a loop": Case(in_loop(), in_loop("dep after(neg) before(abs);"), 3, 5, "a dep keeps them apart"),
    "dep on a node in between": Case(
        three(), three("dep after(neg) before(square);"), 2, 5, "a dep keeps node 2 before node 4"
    ),
    "fuse of the producer": Case(two(), two(first=" with { fuse = false }"), 0, 1, "node 0 says fuse = false"),
    "fuse of the consumer": Case(two(), two(second=" with { fuse = false }"), 0, 1, "node 1 says fuse = false"),
    "group": Case(
        two(first=' with { group = "a" }', second=' with { group = "a" }'),
        two(first=' with { group = "a" }', second=' with { group = "b" }'),
        0,
        1,
        "the nodes are in different groups",
    ),
    "group of one": Case(two(), two(first=' with { group = "a" }'), 0, 1, "the nodes are in different groups"),
    "no_reorder": Case(two(), two(first=" with { no_reorder = true }"), 0, 1, "node 0 says no_reorder = true"),
    "no_reorder in between": Case(
        three(),
        three(middle=" with { no_reorder = true }"),
        2,
        4,
        "node 3, which lies between them, says no_reorder = true",
    ),
    "placement": Case(
        two(first=' with { placement = "cpu" }', second=' with { placement = "cpu" }'),
        two(first=' with { placement = "cpu" }', second=' with { placement = "gpu" }'),
        0,
        1,
        "the nodes are placed differently",
    ),
    "a block's constraint": Case(in_block(), in_block("with { fuse = false }"), 2, 3, "node 2 says fuse = false"),
}


def ledger(text: str, folder: Path, device: Any = "generic") -> list[dict[str, Any]]:
    """The ledger, as ``plan.json`` has it."""
    Synthesizer(device).synthesize(None, graph(text)).emit(folder)
    found: list[dict[str, Any]] = json.loads((folder / "plan.json").read_text())["ledger"]
    return found


def between(entries: list[dict[str, Any]], producer: int, consumer: int) -> list[tuple[bool, str]]:
    nodes = [(entry["producer"]["index"], entry["consumer"]["index"]) for entry in entries]
    said = [(entry["fused"], entry["reason"]) for entry in entries]
    return [one for one, pair in zip(said, nodes, strict=True) if pair == (producer, consumer)]


def shift(case: Case) -> int:
    """How many nodes the constraint adds before the consumer."""
    return len(list(graph(case.bound).walk())) - len(list(graph(case.free).walk()))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_constraint_keeps_apart_what_is_fused_without_it(case: Case, tmp_path: Path) -> None:
    free = between(ledger(case.free, tmp_path / "free"), case.producer, case.consumer - shift(case))
    assert (True, "one kernel") in free
    refused = between(ledger(case.bound, tmp_path / "bound"), case.producer, case.consumer)
    assert refused[0] == (False, case.reason)
    assert not any(is_fused for is_fused, _ in refused)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_constraints_change_no_result(case: Case) -> None:
    agree(case.bound, inputs=lambda step: {"x": np.arange(4, dtype=np.float32) - step}, flags=QUICK)


def test_a_device_bounds_the_nodes_of_a_kernel(tmp_path: Path) -> None:
    text = entry("op neg(x) >> z; op abs(z) >> z; op square(z) >> z; op neg(z) >> y;")
    wide = DeviceArch.from_json({"device": {"type": "cpu"}})
    narrow = DeviceArch.from_json({"device": {"type": "cpu"}, "preferences": {"max_kernel_ops": 2}})
    assert [one["fused"] for one in ledger(text, tmp_path / "wide", wide)] == [True, True, True]
    refused = [one for one in ledger(text, tmp_path / "narrow", narrow) if not one["fused"]]
    assert {one["reason"] for one in refused} == {"a kernel would have more than 2 ops"}
    kernels = Synthesizer(narrow).synthesize(None, graph(text)).facts()["kernels"]
    assert [len(one["nodes"]) for one in kernels] == [2, 2]


def test_a_nodes_own_word_counts_more_than_its_blocks(tmp_path: Path) -> None:
    text = entry(
        "op neg(x) >> z with { fuse = true }; op abs(z) >> y with { fuse = true };", constraints="with { fuse = false }"
    )
    assert between(ledger(text, tmp_path), 0, 1) == [(True, "one kernel")]


def test_bound_nodes_are_computed_in_the_step_where_they_stand(tmp_path: Path) -> None:
    for constraint in ("fuse = false", "no_reorder = true"):
        text = entry(f"op square(x) >> z; op square(x) >> y with {{ {constraint} }}; op add(y, z) >> y;")
        assert len(planned(text, device="generic").facts()["functions"]) >= 2
        names = [one["name"] for one in planned(text, device="generic").facts()["kernels"]]
        assert sum("square" in name for name in names) == 2


def test_a_placement_that_cannot_be_obeyed_is_reported(tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_text(two(second=' with { placement = "gpu" }'))
    facts = json.loads(openinfer("synth", str(tmp_path / "g.oig"), "--json").out)
    assert [(one["node"]["index"], one["reason"]) for one in facts["unmet"]] == [
        (1, "placement is 'gpu', and this device is a cpu")
    ]
    assert "constraints not obeyed: 1\n" in openinfer("synth", str(tmp_path / "g.oig"), "--report").out
    (tmp_path / "h.oig").write_text(two(second=' with { placement = "cpu" }'))
    assert json.loads(openinfer("synth", str(tmp_path / "h.oig"), "--json").out)["unmet"] == []
