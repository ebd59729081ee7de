"""What the page asks, without a page: stepping with a way back, plans with places, traces, and saving."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.studio.serving import DIGITS, TALK, workspace

from openinfer.errors import OpenInferError
from openinfer.studio.calls import answered
from openinfer.studio.page import asset
from openinfer.studio.workspace import Workspace


def ask(work: Workspace, name: str, /, **given: Any) -> dict[str, Any]:
    found = answered(work, name, given)
    assert found["ok"], found
    answer: dict[str, Any] = found["answer"]
    return answer


@pytest.fixture
def talk() -> Workspace:
    return workspace(*TALK, inputs=["temperature=0"], steps=3)


def test_back_is_where_the_last_move_began_with_tables_and_edits_as_they_were(talk: Workspace) -> None:
    ask(talk, "start", inputs=["temperature=0"], steps=3)
    ask(talk, "move", name="finish")
    ask(talk, "move", name="into")
    one = ask(talk, "move", name="into")
    assert one["text"].startswith("loop layers")
    before = ask(talk, "value", name="keys", lead=[])
    ask(talk, "edit", name="h[0]", text="7.5")
    ask(talk, "move", name="over")
    after = ask(talk, "value", name="keys", lead=[])
    assert after["shape"][1] == before["shape"][1] + 1, "the table has grown"
    assert ask(talk, "back")["node"] == one["node"]
    again = ask(talk, "value", name="keys", lead=[])
    assert again["shape"] == before["shape"]
    assert again["plane"] == before["plane"]
    assert ask(talk, "value", name="h", lead=[])["line"]["values"][0] == 7.5, "the edit came before the move"
    assert ask(talk, "move", name="over")["node"] is not None


def test_a_run_that_went_back_ends_as_one_that_did_not(talk: Workspace) -> None:
    ask(talk, "start", inputs=["temperature=0"], steps=3)
    straight = ask(talk, "move", name="resume")["halt"]["returned"]
    ask(talk, "start", inputs=["temperature=0"], steps=3)
    for how in ("finish", "over", "into", "into", "finish", "into"):
        ask(talk, "move", name=how)
    for _ in range(5):
        ask(talk, "back")
    assert ask(talk, "move", name="resume")["halt"]["returned"] == straight


def test_breakpoints_conditions_and_run_to_here_halt_where_they_say(talk: Workspace) -> None:
    ask(talk, "start", inputs=[], steps=1)
    line = next(at for at, text in enumerate(TALK[0].read_text().splitlines(), 1) if "op sdpa" in text)
    found = ask(talk, "break-line", index=line)
    assert found["stops"][0]["line"] == line
    halted = ask(talk, "move", name="resume")
    assert halted["line"] == line
    assert halted["text"].startswith("op sdpa")
    ask(talk, "delete", index=found["stops"][0]["number"])
    ask(talk, "break", text="if l == 2")
    assert ask(talk, "move", name="resume")["indices"] == {"l": 2}
    ask(talk, "delete", index=2)
    node = halted["node"]
    assert ask(talk, "run-to", index=node)["node"] == node
    watched = ask(talk, "watch", name="h[0]")["watches"][0]
    assert watched["shape"] == []


def test_a_value_that_is_set_is_what_the_step_goes_on_with() -> None:
    work = workspace(*DIGITS)
    ask(work, "start", inputs=["image=zeros"], steps=1)
    scores = next(node["index"] for node in work.opened()["graph"]["nodes"] if node["label"] == "argmax_axis")
    ask(work, "run-to", index=scores)
    ask(work, "edit", name="scores[0, 7]", text="1000.0")
    assert ask(work, "move", name="finish")["halt"]["returned"]["digit"] == "[7]"


@pytest.mark.parametrize("said", ["nan", "-inf", "[nan, 1, inf]"])
def test_values_that_json_cannot_name_can_be_set(tmp_path: Path, said: str) -> None:
    path = tmp_path / "g.oig"
    path.write_text("dynamic { x: f32[3]; } volatile { y: f32[3]; } block entry { op neg(x) >> y; return y; }")
    work = workspace(path)
    ask(work, "start", inputs=[], steps=1)
    ask(work, "edit", name="x", text=said)
    statistics = ask(work, "value", name="x", lead=[])["statistics"]
    assert (statistics["nan"] > 0) == ("nan" in said)
    assert (statistics["inf"] > 0) == ("inf" in said)


def test_what_cannot_be_done_is_said(talk: Workspace) -> None:
    refused = [answered(talk, "move", {"name": "over"}), answered(talk, "compare", {"name": "a", "other": "b"})]
    ask(talk, "start", inputs=[], steps=1)
    refused += [
        answered(talk, *one)
        for one in (
            ("back", {}),
            ("move", {"name": "fly"}),
            ("break", {"text": "if l"}),
            ("watch", {"name": "nobody"}),
            ("edit", {"name": "embedding", "text": "1"}),
            ("edit", {"name": "h", "text": "[1, 2]"}),
            ("edit", {"name": "h", "text": "two"}),
            ("start", {"inputs": ["x"]}),
        )
    ]
    assert [one["ok"] for one in refused] == [False] * len(refused)
    assert all(one["problems"][0]["message"] for one in refused)


@pytest.mark.parametrize("device", ["host", "lavapipe", "h200", "cortex-m4"])
def test_every_function_of_a_plan_is_found_in_its_files(device: str) -> None:
    work = workspace(*DIGITS)
    plan = ask(work, "plan", device=device)
    defined = {one["function"]: one for one in plan["places"] if one["role"] == "definition"}
    assert {one["name"] for one in plan["functions"]} == set(defined)
    for one in defined.values():
        lines = ask(work, "file", device=device, path=one["file"])["text"].split("\n")
        assert re.search(rf"\b{one['function']}\(", "\n".join(lines[one["first"] - 1 : one["last"]]))
        assert lines[one["last"] - 1].startswith("}")
    nodes = {index for one in plan["functions"] for index in one["nodes"]}
    kernel = ask(work, "kernel", device=device, index=min(nodes))["kernel"]
    assert kernel["function"] in defined


@pytest.mark.parametrize("device", ["host", "lavapipe", "h200"])
@pytest.mark.parametrize("graph", [DIGITS, TALK], ids=["digits", "talk"])
def test_every_call_of_a_kernel_has_the_function_that_computes_its_nodes(graph: tuple[Path, Path], device: str) -> None:
    plan = ask(workspace(*graph), "plan", device=device)
    functions = {one["name"]: one for one in plan["functions"]}
    for kernel in plan["kernels"]:
        assert re.fullmatch(rf"\w+_k\d+_{kernel['name']}(_1)?", kernel["function"])
        assert {node["index"] for node in kernel["nodes"]} <= {*functions[kernel["function"]]["nodes"]}


def test_the_kernels_of_a_circuit_are_its_entities(tmp_path: Path) -> None:
    path = tmp_path / "sums.oig"
    path.write_text("dynamic { x: i32[8]; }\nvolatile { y: i32[8]; }\nblock entry { op add(x, x) >> y; return y; }\n")
    work = workspace(path)
    plan = ask(work, "plan", device="ice40-up5k")
    (kernel,) = plan["kernels"]
    (place,) = [one for one in plan["places"] if one["role"] == "definition"]
    assert (
        place["function"]
        == kernel["function"]
        == ask(work, "kernel", device="ice40-up5k", index=0)["kernel"]["function"]
    )
    text = ask(work, "file", device="ice40-up5k", path=place["file"])["text"]
    assert f"entity {kernel['function']} is" in text
    assert "line 3: op add(x, x) >> y" in text


def test_a_change_that_help_names_is_made() -> None:
    work = workspace(*DIGITS)
    text = work.opened()["text"].replace("op flatten", "op flaten")
    (problem,) = ask(work, "check", text=text)["problems"]
    assert problem["fixes"][0] == "change 'flaten' to 'flatten'"
    fixed = ask(work, "fix", text=text, name=problem["message"], other=problem["fixes"][0])["text"]
    assert fixed == work.opened()["text"].replace("flaten", "flatten")
    assert not answered(work, "fix", {"text": fixed, "name": problem["message"], "other": problem["fixes"][0]})["ok"]


def test_the_simulator_and_compiled_code_are_compared_event_by_event() -> None:
    work = workspace(*DIGITS)
    one = ask(work, "trace-simulator", inputs=[], steps=1)
    other = ask(work, "trace-device", device="host", inputs=[], steps=1)
    found = ask(work, "compare", name=one["name"], other=other["name"], tolerance=1e-4)
    assert found["same"]
    assert found["compared"] == "values"
    changed = ask(work, "trace-simulator", inputs=["image=ones"], steps=1)
    assert not ask(work, "compare", name=changed["name"], other=other["name"], tolerance=1e-4)["same"]


def test_saving_writes_the_file_unless_somebody_else_has(tmp_path: Path) -> None:
    path = tmp_path / "g.oig"
    path.write_bytes(b"volatile { y: f32; }\r\nblock entry { op neg(y) >> y; return; }\r\n")
    work = workspace(path)
    text = work.opened()["text"]
    assert "\r" not in text
    ask(work, "save", text=text.replace("neg", "abs"))
    assert path.read_bytes() == b"volatile { y: f32; }\r\nblock entry { op abs(y) >> y; return; }\r\n"
    path.write_text("// mine now\n")
    with pytest.raises(OpenInferError, match="changed by another program"):
        work.save(text)
    assert path.read_text() == "// mine now\n"


def test_completion_and_hover_come_from_the_language_service() -> None:
    work = workspace(*DIGITS)
    text = "volatile { y: f32; }\nblock entry { op ne"
    labels = [one["label"] for one in ask(work, "complete", text=text, index=len(text))["entries"]]
    assert "neg" in labels
    text = work.opened()["text"]
    assert "conv2d" in ask(work, "hover", text=text, index=text.index("conv2d(") + 2)["text"]


def test_weights_have_statistics_and_a_histogram() -> None:
    work = workspace(*DIGITS)
    found = ask(work, "weight", name="W1", lead=[3, 0])
    assert found["shape"] == [16, 1, 3, 3]
    assert found["lead"] == [3, 0]
    assert sum(found["histogram"]["counts"]) == 16 * 9
    assert len(found["plane"]["cells"]) == 3
    first = ask(workspace(*TALK), "weight", name="qkv[l]", lead=[])
    assert first["name"] == "qkv[0]"


def test_licences_of_what_is_bundled_are_there() -> None:
    text = asset("LICENSES.txt")
    for name in ("preact", "@codemirror/view", "@dagrejs/dagre", "uplot", "d3-zoom"):
        assert re.search(rf"^{re.escape(name)} \d", text, re.MULTILINE), name
    assert "Permission is hereby granted" in text
