"""Pictures of graphs: all is drawn, boxes nest as the graph does, no name breaks the DOT text.

``python -m tests.ir.test_dot`` writes the golden files anew; look at the difference before you commit it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.lang.sketches import sketch, sketch_of

from openinfer.dtypes import dtype_of
from openinfer.errors import printable
from openinfer.ir import (
    Access,
    Assign,
    Attribute,
    Await,
    Barrier,
    Block,
    Branch,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Dep,
    Graph,
    Input,
    Loop,
    MemoryKind,
    ModelRef,
    Node,
    Op,
    Return,
    Scope,
    Single,
    Slice,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.dot import graph_dot
from openinfer.ir.dot_sheet import DotOptions
from openinfer.ir.expr import Num, Ref
from openinfer.ir.values import StrValue, VarValue

FOLDER = Path(__file__).parent / "golden"
SOURCES = sorted(FOLDER.glob("*.oig"))
whole_dot = partial(graph_dot, options=DotOptions(folds_weights=False, column=0))
"""Pictures in which every variable and weight has its own shape, in one column."""
GOLDEN = ("minimal", "decode", "consumers")
HOSTILE = (
    'a"b',
    "a\\",
    "]; x [",
    "<b>",
    "</TD>",
    "&amp;",
    "a\nb",
    "\x00\x1b",
    "}{",
    "/*",
    "//",
    "é€𝄞",
    "\ud800",
    "\\N\\l\\",
    "-->",
)

_TOKEN = re.compile(
    r'\s+|(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_]\w*|[0-9.]+)|(?P<symbol>->|[{}\[\];,=])', re.ASCII
)


def dot_tokens(text: str) -> Iterator[tuple[str, str]]:
    """The tokens of DOT text, as its reference defines them; comments never occur."""
    at = 0
    while at < len(text):
        if text[at] == "<":
            end = html_end(text, at)
            yield "html", text[at:end]
            at = end
            continue
        match = _TOKEN.match(text, at)
        assert match is not None, f"no token at {text[at : at + 40]!r}"
        if match.lastgroup is not None:
            yield match.lastgroup, match.group()
        at = match.end()


def html_end(text: str, at: int) -> int:
    depth = 0
    for position in range(at, len(text)):
        depth += {"<": 1, ">": -1}.get(text[position], 0)
        if not depth:
            return position + 1
    pytest.fail("an HTML string does not end")


def boxes(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The box around each node and box, and the label of each."""
    tokens = list(dot_tokens(text))
    stack: list[str] = []
    inside: dict[str, str] = {}
    labels: dict[str, str] = {}
    for position, (_, word) in enumerate(tokens):
        if word == "{":
            name = tokens[position - 1][1]
            if stack:
                inside[name] = stack[-1]
            stack.append(name)
        elif word == "}":
            stack.pop()
        elif word == "[" and tokens[position - 2][1] != "->":
            name = tokens[position - 1][1]
            if name not in ("node", "edge", "graph"):
                inside[name] = stack[-1]
            found = next((tokens[i + 2][1] for i in range(position, len(tokens)) if tokens[i][1] == "label"), "")
            labels[stack[-1] if name == "graph" else name] = words(found)
    return inside, labels


def words(label: str) -> str:
    """The text of a label, a space between its rows."""
    if not label.startswith("<"):
        return label.strip('"')
    return " ".join(part for part in ElementTree.fromstring(f"<r>{label[1:-1]}</r>").itertext()).replace("\xa0", " ")


def edges(text: str) -> list[tuple[str, str, str]]:
    """Tail, head and attributes of each edge."""
    return re.findall(r"^    (\w+) -> (\w+)(.*);$", text, re.MULTILINE)


def svg(text: str) -> ElementTree.Element:
    program = shutil.which("dot")
    assert program is not None, "these tests need Graphviz: apt-get install graphviz"
    done = subprocess.run([program, "-Tsvg"], input=text.encode("ascii"), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return ElementTree.fromstring(done.stdout)


def svg_words(text: str) -> set[str]:
    """Each text of the picture that Graphviz makes, and each tooltip."""
    titles = "{http://www.w3.org/1999/xlink}title"
    picture = svg(text)
    found = [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    found += [element.get(titles) or "" for element in picture.iter()]
    return {word.replace("\xa0", " ").replace("\u200b", "").replace("\u29f5", "\\").strip() for word in found}


# --- structure ------------------------------------------------------------------------------------------------------


def check_body(nodes: tuple[Node, ...], box: str, inside: dict[str, str], labels: dict[str, str]) -> None:
    for node in nodes:
        name = f"n{node.index}"
        match node.kind:
            case Loop(title, index, start, end):
                assert labels[f"cluster_{name}"] == f"loop {title} ({index} in {start}..{end})"
                assert inside[f"cluster_{name}"] == box
                check_body(node.body, f"cluster_{name}", inside, labels)
            case Scope(title):
                assert labels[f"cluster_{name}"] == f'scope "{title}"'
                assert inside[f"cluster_{name}"] == box
                check_body(node.body, f"cluster_{name}", inside, labels)
            case Assign() | Dep():
                assert name not in inside
            case Op(op):
                assert labels[name].split()[0] == op
                assert inside[name] == box
            case kind:
                words = labels[name].split()[0].removeprefix("cache.")
                assert type(kind).__name__.lower().removeprefix("cache") == words
                assert inside[name] == box


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_node_stands_in_the_box_of_its_block_loop_or_scope(path: Path) -> None:
    drawn = sketch_of(path)
    inside, labels = boxes(whole_dot(drawn))
    for number, block in enumerate(drawn.blocks.values()):
        assert labels[f"cluster_b{number}"].startswith(f"block {block.name}")
        assert inside[f"cluster_b{number}"] == "openinfer"
        check_body(block.nodes, f"cluster_b{number}", inside, labels)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_variable_is_drawn_with_its_type(path: Path) -> None:
    drawn = sketch_of(path)
    _, labels = boxes(whole_dot(drawn))
    shapes = [label for name, label in labels.items() if re.fullmatch(r"v\d+", name)]
    for variable in drawn.vars.values():
        indices = f"({', '.join(variable.table_indices)})" if variable.table_indices else ""
        start = f"{variable.name}{indices} {variable.dtype.name}"
        assert any(label.startswith(start) for label in shapes), start
    for node in drawn.walk():
        if isinstance(node.kind, Assign) and node.kind.dtype is not None:
            assert any(label.startswith(f"{node.kind.name} {node.kind.dtype.name}") for label in shapes)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nodes_that_follow_each_other_are_connected(path: Path) -> None:
    """By an edge, or by a value that the first writes and the second reads."""
    drawn = sketch_of(path)
    text = whole_dot(drawn)
    inside, _ = boxes(text)
    heads: dict[str, set[str]] = {}
    for tail, head, _ in edges(text):
        heads.setdefault(tail, set()).add(head)
    for block in drawn.blocks.values():
        steps = [f"n{n.index}" for n in Graph({}, {}, {"b": block}).walk() if f"n{n.index}" in inside]
        empty = {name for name in inside if name.endswith("_empty")}
        for first, second in pairwise(steps):
            reached = heads[first] | {head for shape in heads[first] for head in heads.get(shape, ())}
            reached |= {head for name in reached & empty for head in heads[name]}
            assert second in reached, (first, second)


def drawing(body: str, blocks: str = "") -> str:
    declared = """
        dynamic { x: f32[D]; c: bool; } volatile { y: f32[D]; W(l): f32[D, D] @pattern("W.{l}"); }
        constant { eps: f32; } persistent { step: i32; K(l, t): f32[D] @table @fixed(l=4); }
    """
    return whole_dot(sketch(f"{declared} block entry {{ {body} }} {blocks}"))


def look_of(text: str, tail: str, head: str) -> str:
    _, labels = boxes(text)
    found = [look for a, b, look in edges(text) if labels[a].startswith(tail) and labels[b].startswith(head)]
    assert len(found) == 1, (tail, head, found)
    return found[0]


def test_an_indexed_access_is_written_on_its_edge() -> None:
    text = drawing("op matmul(x, W[2]) >> y; cache.write y >> K[1, step]; cache.read K[1, 0..step] >> y; return;")
    assert "W[2]" in look_of(text, "W(l)", "matmul")
    assert "K[1, step]" in look_of(text, "cache.write", "K(l, t)")
    assert "K[1, 0..step]" in look_of(text, "K(l, t)", "cache.read")
    assert "label" not in look_of(text, "x f32", "matmul")


def test_a_named_input_is_written_on_its_edge() -> None:
    text = drawing("op matmul(a=x, b=W[2]) >> y; return;")
    assert ";a&" in look_of(text, "x f32", "matmul")
    assert "b=W[2]" in look_of(text, "W(l)", "matmul")


def test_scalars_in_indices_and_constants_in_parameters_are_inputs_too() -> None:
    text = drawing("op norm(x, eps=eps, axis=D) >> y; cache.write y >> K[1, step]; return;")
    look_of(text, "eps f32", "norm")
    assert "odot" in look_of(text, "step i32", "cache.write")


def test_each_write_draws_the_variable_anew_so_that_no_value_flows_up() -> None:
    text = drawing("op relu(x) >> y; op relu(y) >> y; op relu(y) >> y; return y;")
    _, labels = boxes(text)
    assert [label for label in labels.values() if label.startswith("y")] == ["y f32[D]"] * 3


def test_what_is_only_read_is_drawn_once_in_each_box() -> None:
    text = drawing('op f(x, x) >> y; op g(x, y) >> y; scope "s" { op h(x, y) >> y; op h(x, y) >> y; } return;')
    inside, labels = boxes(text)
    assert sorted(inside[name] for name, label in labels.items() if label.startswith("x")) == [
        "cluster_b0",
        "cluster_n2",
    ]


def test_branches_are_dashed_and_carry_the_condition() -> None:
    blocks = "block good { op f(x) >> y; return; } block bad { return; } block last { return; }"
    text = drawing("branch c good bad; branch last; op g(y) >> y; return;", blocks)
    inside, labels = boxes(text)
    dashed = {(inside[head], look) for _, head, look in edges(text) if "dashed" in look}
    names = {labels[box]: "".join(re.findall("&#160;(.*)&#160;", look)) for box, look in dashed}
    assert names == {"block good": "c", "block bad": "not c", "block last": ""}
    # y comes out of the first branch, because `good` writes it
    look_of(text, "branch c", "y f32")


def test_dotted_edges_join_yields_and_awaits() -> None:
    text = whole_dot(sketch_of(FOLDER / "consumers.oig"))
    inside, labels = boxes(text)
    found = sorted((labels[inside[a]], labels[inside[b]]) for a, b, look in edges(text) if "dotted" in look)
    consumers = ("block in_place", "block on_left", "block on_right")
    assert found == sorted(
        [("block entry", name) for name in consumers] + [(name, "block entry") for name in consumers]
    )
    look_of(text, "await x", "left f32")


def test_a_dep_is_an_edge_between_its_partners_and_a_barrier_is_a_node() -> None:
    text = drawing("op f(x) >> y; dep after(f) before(cache.write); barrier; cache.write y >> K[0, 0]; return;")
    assert "dep" in look_of(text, "f", "cache.write")
    assert "barrier" in boxes(text)[1].values()


def test_a_dep_without_partners_is_a_node() -> None:
    nodes = (Node(Dep("f", "g")), Node(Return()))
    _, labels = boxes(whole_dot(Graph.of((), (), (Block("entry", nodes),))))
    assert labels["n0"] == "dep after(f), before(g)"


def test_constraints_are_shown_on_nodes_and_blocks() -> None:
    text = whole_dot(sketch_of(FOLDER / "ordering.oig"))
    _, labels = boxes(text)
    assert labels["cluster_b0"] == 'block entry with placement = "gpu", stream = 2'
    assert 'matmul with fuse = true, group = "first", no_reorder = true' in labels.values()


def test_long_lists_of_parameters_are_cropped() -> None:
    parameters = ", ".join(f'p{i}="{"z" * 100}"' for i in range(50))
    text = drawing(f"op f(x, {parameters}) >> y; return;")
    _, labels = boxes(text)
    label = next(label for label in labels.values() if label.startswith("f "))
    assert label.endswith("... and 47 more")
    assert len(label) < 160


def test_unused_variables_have_a_box_of_their_own() -> None:
    inside, labels = boxes(drawing("op relu(x) >> y; return;"))
    unused = [labels[name].split()[0] for name, box in inside.items() if box == "cluster_unused"]
    assert unused == ["c", "W(l)", "eps", "step", "K(l,"]


def test_a_temporary_whose_zeros_are_read_is_drawn_where_it_is_declared() -> None:
    inside, labels = boxes(drawing('assign t: f32[D]; scope "s" { op f(t) >> y; op g(y) >> t; } return;'))
    assert [inside[name] for name, label in labels.items() if label == "t f32[D]"] == ["cluster_b0", "cluster_n1"]


def test_a_temporary_that_is_written_first_is_drawn_only_there() -> None:
    inside, labels = boxes(drawing('assign t: f32[D]; scope "s" { op f(x) >> t; } return;'))
    assert [inside[name] for name, label in labels.items() if label == "t f32[D]"] == ["cluster_n1"]


def test_graphs_that_would_not_pass_the_checks_can_be_drawn() -> None:
    cycle = Block("entry", (Node(Branch("c", "entry", "gone")), Node(Scope("s", ())), Node(Await(("x",)))))
    svg(whole_dot(Graph.of((), (), (cycle, Block("empty", ()), Block("b", (Node(Await(("x",))),))))))
    svg(whole_dot(Graph.of((), (), ())))


# --- hostile names --------------------------------------------------------------------------------------------------


def graph_named(name: str) -> Graph:
    """A graph with a name wherever there can be one."""
    f32 = dtype_of("f32")
    x, k = Access(name), Access(name + "k", (Single(Ref(name)), Slice(Num(0), Ref("s" + name))), bracketed=True)
    variables = (
        VarDecl(name, MemoryKind.DYNAMIC, f32, (Ref(name),)),
        VarDecl(name + "k", MemoryKind.PERSISTENT, f32, (), table_indices=(name,), table=True, fixed=((name, Num(3)),)),
        VarDecl(
            "s" + name, MemoryKind.CONSTANT, f32, ref_name=name, attrs=(Attribute(name, ((name, StrValue(name)),)),)
        ),
    )
    attrs = ((name, StrValue(name)), ("v", VarValue("s" + name)))
    with_name = {name: StrValue(name)}
    body = (
        Node(Op(name, (Input(x, name), Input(k), Input(ModelRef(name, formatted=True))), attrs, (x,)), with_name),
        Node(Transfer(x, k)),
        Node(CacheRead(k, x)),
        Node(CacheWrite(x, k)),
        Node(CacheReset(k)),
        Node(CacheIncrement("s" + name, Num(2))),
    )
    entry = (
        Node(Assign("t" + name, f32, (Ref(name),))),
        Node(Loop(name, name, Num(0), Ref("s" + name), (Node(Scope(name, body)),))),
        Node(Op("f", (), (), (Access("t" + name),))),
        Node(Dep(name, "f")),
        Node(Dep("nothing" + name, name)),
        Node(Barrier()),
        Node(Branch(name, "a" + name, "gone" + name)),
        Node(Yield((name,))),
        Node(Await((name,))),
        Node(Return((name, "t" + name))),
    )
    consumer = (Node(Await((name,))), Node(Yield((name,))))
    blocks = (Block("entry", entry, with_name), Block("a" + name, (Node(Return()),)), Block("b" + name, consumer))
    return Graph.of((), variables, blocks)


@pytest.mark.parametrize(
    "collapsed", [None, frozenset(), frozenset({"loops", "blocks"})], ids=["whole", "folded", "collapsed"]
)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_name_changes_the_tokens_of_the_text(name: str, collapsed: frozenset[str] | None) -> None:
    options = DotOptions(collapsed=collapsed or frozenset(), folds_weights=collapsed is not None)
    text, harmless = (graph_dot(graph_named(one), options) for one in (name, "n" * len(name)))
    assert text.isascii()
    assert re.search(r"[\x00-\x09\x0b-\x1f]", text) is None
    found, expected = list(dot_tokens(text)), list(dot_tokens(harmless))
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert [word for kind, word in found if kind in ("word", "symbol")] == [
        word for kind, word in expected if kind in ("word", "symbol")
    ]
    for kind, word in found:
        if kind == "html":
            words(word)  # well-formed


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_graphviz_shows_every_name_as_it_is(name: str) -> None:
    shown = svg_words(whole_dot(graph_named(name)))
    assert {printable(name).strip(), f"block a{printable(name)}", f"{printable(name)}k({printable(name)})"} <= shown
    tooltip = printable("".join(c if ord(c) <= 0xFFFF else f"\\U{ord(c):08x}" for c in name))
    assert f"branch {tooltip} a{tooltip} gone{tooltip}" in shown


def test_very_long_names_are_cropped() -> None:
    text = whole_dot(graph_named("n" * 100_000))
    assert len(text) < 60_000


# --- the same text, accepted by Graphviz ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_graphviz_draws_every_graph(path: Path) -> None:
    drawn = sketch_of(path)
    shown = svg_words(whole_dot(drawn))
    assert {f"block {name}" for name in drawn.blocks} <= shown


def test_graphviz_draws_deep_and_long_graphs() -> None:
    deep = 'scope "s" {' * 100 + "op relu(x) >> y;" + "}" * 100
    assert 'scope "s"' in svg_words(drawing(f"{deep} {'op relu(y) >> y;' * 200} return;"))


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import sys; from openinfer.lang import parse; from openinfer.ir.dot import graph_dot\n"
        "for path in sys.argv[1:]: sys.stdout.write(graph_dot(parse(open(path).read()).graph))"
    )
    digests = set()
    for seed in ("0", "1", "4242"):
        command = [sys.executable, "-c", script, *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        digests.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_pictures(name: str) -> None:
    """Run ``python -m tests.ir.test_dot`` when the picture has changed on purpose."""
    assert graph_dot(sketch_of(FOLDER / f"{name}.oig")) == (FOLDER / f"{name}.dot").read_text(encoding="ascii")


def update_golden() -> None:
    """Write the golden files anew."""
    for name in GOLDEN:
        (FOLDER / f"{name}.dot").write_text(graph_dot(sketch_of(FOLDER / f"{name}.oig")), encoding="ascii")


if __name__ == "__main__":
    update_golden()
