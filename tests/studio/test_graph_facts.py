"""The picture of a graph: what flows where, what is inside what, and what is folded away."""

from typing import Any

import pytest
from tests.studio.serving import TALK

from openinfer.oinf import ModelLoader
from openinfer.studio.document import CheckedWith, checked_text, page_offset, text_offset
from openinfer.studio.graph_facts import MOST_SHOWN, graph_facts


def picture(text: str, **given: Any) -> dict[str, Any]:
    found = graph_facts(checked_text(text, CheckedWith(**given)))
    assert found is not None
    return found


def edges(found: dict[str, Any], kind: str) -> list[tuple[str, str, str]]:
    return [(source, target, name) for source, target, name, of in found["edges"] if of == kind]


LOOP = """
dynamic { x: f32[4]; }
volatile { h: f32[4]; y: f32[4]; }
block entry {
    transfer x >> h;
    loop again (i in 0..3) { op neg(h) >> y; op add(y, x) >> h; }
    return h;
}
"""


def test_a_value_of_the_iteration_before_is_carried() -> None:
    found = picture(LOOP)
    assert edges(found, "carried") == [("n3", "n2", "h")]
    assert ("n0", "n2", "h") in edges(found, "data")
    assert ("n3", "n4", "h") in edges(found, "data")
    assert {one["id"]: one["parent"] for one in found["nodes"]}["n2"] == "n1"


def test_what_is_written_to_persistent_memory_goes_back_to_it() -> None:
    found = picture("persistent { s: i32 @init(0); } block entry { cache.increment s; return; }")
    assert edges(found, "state") == [("n0", "entry/s", "s")]
    assert edges(found, "data") == [("entry/s", "n0", "s")]


def test_weights_are_inside_the_nodes_that_read_them() -> None:
    model = ModelLoader.open(str(TALK[1]))
    found = picture(TALK[0].read_text(encoding="utf-8"), model=model)
    linear = next(one for one in found["nodes"] if one["text"].startswith("op linear(x, qkv[l])"))
    assert linear["weights"] == ["qkv[l]"]
    assert not any(one["label"] == "qkv" for one in found["nodes"])
    assert found["types"]["past"] == "f32[P, 2, 32]"
    assert found["types"]["h"] == "f32[128]"


def test_a_branch_reads_and_writes_what_its_blocks_do() -> None:
    model = ModelLoader.open(str(TALK[1]))
    found = picture(TALK[0].read_text(encoding="utf-8"), model=model)
    branch = next(one for one in found["nodes"] if one["kind"] == "branch")
    assert branch["runs"] == ["b:likeliest", "b:drawn"]
    assert any(target == branch["id"] and name == "logits" for _, target, name in edges(found, "data"))
    assert (branch["id"], "entry/token", "token") in edges(found, "state")


@pytest.mark.parametrize("count", [MOST_SHOWN + 1, 2_000])
def test_long_bodies_are_divided_until_every_container_fits_a_screen(count: int) -> None:
    ops = "op neg(h) >> h;\n" * count
    found = picture(f"volatile {{ h: f32; }} block entry {{ {ops} return; }}")
    children: dict[str, int] = {}
    for one in (*found["nodes"], *found["containers"]):
        children[one["parent"]] = children.get(one["parent"], 0) + 1
    assert max(children.values()) <= MOST_SHOWN
    assert found["collapsed"]
    assert sum(one["index"] is not None for one in found["nodes"]) == count + 1


def test_a_text_with_errors_has_problems_where_they_are() -> None:
    text = "// \N{ROCKET}\nvolatile { y: f32; } block entry { op nag(y) >> y; return; }"
    found = checked_text(text, CheckedWith())
    facts = found.problem_facts()[0]
    assert facts["code"] == "E202" or "nag" in str(facts["message"])
    assert text.encode("utf-16-le")[2 * int(str(facts["from"])) :].decode("utf-16-le").startswith(("op nag", "nag"))


def test_offsets_go_to_the_page_and_back() -> None:
    text = "a\N{ROCKET}b\N{GRINNING FACE}c"
    assert [text_offset(text, page_offset(text, at)) for at in range(len(text) + 1)] == list(range(len(text) + 1))
