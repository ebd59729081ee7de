"""What a picture shows on demand: types of a model, bodies as one shape, weights in their nodes, columns, a legend."""

import re

import pytest
from tests.ir.test_dot import boxes, edges, look_of, svg
from tests.lang.sketches import sketch

from openinfer.ir.dot import graph_dot
from openinfer.ir.dot_legend import CARRIED, MEMORY, STATE
from openinfer.ir.dot_sheet import DotOptions
from openinfer.ir.graph import Graph

DECLARED = """
    dynamic { x: f32[D]; n: i32; } volatile { y: f32[D]; z: f32[D]; W(l): f32[D, D] @pattern("W.{l}"); }
    constant { eps: f32; b: f32[D]; } persistent { step: i32; s: f32[D]; }
"""


def graph_of(body: str, blocks: str = "") -> Graph:
    return sketch(f"{DECLARED} block entry {{ {body} }} {blocks}")


def legend_of(text: str) -> str:
    return boxes(text)[1]["openinfer"]


LOOPED = """
    transfer x >> y;
    loop layers (l in 0..4) { op matmul(y, W[l]) >> z; op add(z, b) >> y; }
    op add(y, s) >> s; return y;
"""


def test_weights_stand_in_the_node_that_reads_them() -> None:
    text = graph_dot(graph_of(LOOPED))
    _, labels = boxes(text)
    assert "matmul W[l] f32[D, D]" in labels.values()
    assert "add b f32[D]" in labels.values()
    assert not any(label.startswith("W(l)") for label in labels.values())
    assert "a weight that it reads" in legend_of(text)
    plain = graph_dot(graph_of(LOOPED), DotOptions(folds_weights=False))
    assert any(label.startswith("W(l)") for label in boxes(plain)[1].values())
    assert "a weight that it reads" not in legend_of(plain)


def test_a_long_name_of_a_weight_leaves_its_type_whole() -> None:
    name = "w" * 60
    declared = f"dynamic {{ x: f32; }} volatile {{ y: f32; }} constant {{ {name}: f32[12, 34]; }}"
    drawn = sketch(f"{declared} block entry {{ op f(x, {name}) >> y; return y; }}")
    (label,) = (label for label in boxes(graph_dot(drawn))[1].values() if label.startswith("f "))
    assert label.endswith("... f32[12, 34]")
    assert len(label) < 45


def test_a_loop_carries_what_it_leaves_to_its_next_iteration() -> None:
    text = graph_dot(graph_of(LOOPED))
    _, labels = boxes(text)
    carried = [(labels[a], labels[b].split()[0]) for a, b, look in edges(text) if CARRIED.color in look]
    assert carried == [("y f32[D]", "matmul")]


def test_persistent_memory_goes_on_to_the_next_step() -> None:
    text = graph_dot(graph_of(LOOPED))
    _, labels = boxes(text)
    (kept,) = [(a, b) for a, b, look in edges(text) if STATE.color in look]
    assert [labels[one] for one in kept] == ["s f32[D]", "s f32[D]"]
    assert kept[0] != kept[1]


def test_types_of_a_binding_stand_in_the_shapes() -> None:
    body = "t = op f(x); return t;"
    text = graph_dot(graph_of(body), DotOptions(types={"x": "f32[8]", "t": "f16[8]"}))
    assert {"x f32[8]", "t f16[8]"} <= set(boxes(text)[1].values())


@pytest.mark.parametrize("chosen", ["loops", "layers"])
def test_a_collapsed_loop_is_one_shape_between_what_it_reads_and_leaves(chosen: str) -> None:
    text = graph_dot(graph_of(LOOPED), DotOptions(collapsed=frozenset({chosen})))
    _, labels = boxes(text)
    assert "loop layers (l in 0..4) 2 nodes 2 weights" in labels.values()
    assert "matmul" not in text
    look_of(text, "loop layers", "y")
    assert not any(label.startswith("z") for label in labels.values())
    assert "drawn as one shape" in legend_of(text)
    svg(text)


def test_collapsed_scopes_and_blocks_keep_branches_and_hand_overs() -> None:
    body = 'scope "s" { op f(x) >> y; branch other; } yield y; await y; return y;'
    blocks = "block other { op g(y) >> y; return; } block woken { await y; op h(y) >> y; yield y; }"
    text = graph_dot(graph_of(body, blocks), DotOptions(collapsed=frozenset({"scopes", "blocks"})))
    inside, labels = boxes(text)
    assert [label for label in labels.values() if "nodes" in label] == [
        'scope "s" 2 nodes',
        "the block's nodes 2 nodes",
        "the block's nodes 3 nodes",
    ]
    found = {
        (labels[inside[a]], labels[inside[b]]) for a, b, look in edges(text) if "dashed" in look or "dotted" in look
    }
    assert found == {
        ("block entry", "block other"),
        ("block entry", "block woken"),
        ("block woken", "block entry"),
    }
    svg(text)


def test_a_dep_reaches_into_a_collapsed_body() -> None:
    body = 'op f(x) >> y; dep after(f) before(g); scope "s" { op g(y) >> y; } return y;'
    text = graph_dot(graph_of(body), DotOptions(collapsed=frozenset({"scopes"})))
    assert "dep" in look_of(text, "f", "scope")


def test_long_bodies_stand_in_columns_between_which_nothing_is_drawn() -> None:
    body = " ".join(["op f(x, y) >> y;"] * 50)
    text = graph_dot(graph_of(f"{body} return y;"))
    inside, labels = boxes(text)
    columns = {box for box in inside.values() if re.fullmatch(r"cluster_b0_c\d+", box)}
    assert len(columns) == 4
    visible = [(a, b) for a, b, look in edges(text) if "invis" not in look and a != "b0_start"]
    assert all(inside[a] == inside[b] for a, b in visible)
    again = re.findall(r"(v\d+) \[.*dashed", text)
    assert [labels[name] for name in again] == ["y f32[D]"] * 3
    assert "another column" in legend_of(text)
    assert labels["cluster_b0_c2_head"] == "column 2 of 4, goes on from column 1"
    shown = [element.text or "" for element in svg(text).iter("{http://www.w3.org/2000/svg}text")]
    places = [element.get("x", "") for element in svg(text).iter("{http://www.w3.org/2000/svg}text")]
    heads = [float(x) for word, x in zip(shown, places, strict=True) if word.startswith("column ")]
    names = [word for word in shown if word.startswith("column ")]
    assert [name[:8] for _, name in sorted(zip(heads, names, strict=True))] == [f"column {n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(("column", "count"), [(0, 0), (10, 6)])
def test_the_length_of_columns_can_be_chosen(column: int, count: int) -> None:
    body = " ".join(["op f(x, y) >> y;"] * 50)
    text = graph_dot(graph_of(f"{body} return y;"), DotOptions(column=column))
    assert text.count("_head [label") == count


def test_the_legend_explains_what_is_there_and_nothing_else() -> None:
    text = graph_dot(graph_of("op f(x) >> y; return y;", ""))
    small = legend_of(graph_dot(sketch("dynamic { x: f32; } block entry { op f(x) >> x; return x; }")))
    assert "dynamic" in small
    assert not [name for name in MEMORY if name != "dynamic" and name in small]
    assert "next iteration" not in small
    assert "persistent" in legend_of(text)  # it is in the box of what nobody uses
