"""What nodes read and write, and which of them must stay in order."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.check.binding import bound

from openinfer import Simulator, graph
from openinfer.check.effects import Dependency, dependencies

DECLARED = """dynamic { a: f32; b: f32; i: i32; flag: bool; } volatile { x: f32; y: f32; z: f32; }
    constant { eps: f32 @init(1); n: i32 @init(2); } persistent { K(l, t): f32 @table; step: i32; P: f32[4]; }"""


def effects(node: str, blocks: str = "") -> tuple[str, str]:
    """What the first node of entry reads and writes, with the blocks that it runs."""
    ready = bound(f"{DECLARED} block entry {{ {node} return; }} {blocks}")
    found = ready.reached.whole(ready.effects[0])
    return " ".join(sorted(found.reads)), " ".join(sorted(found.writes))


# --- effects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "reads", "writes"),
    [
        ("op add(a, b) >> x;", "a b", "x"),
        ("op add(x, b) >> x;", "b x", "x"),
        ("op relu(a, alpha=eps) >> x;", "a eps", "x"),
        ("op mul(a=a, b=eps) >> x;", "a eps", "x"),
        ("op neg(K[i, step]) >> x;", "K i step", "x"),
        ("op neg(a) >> K[i, n];", "a i n", "K"),
        ("op relu(a, alpha=3) >> x;", "a", "x"),
        ("transfer a >> x;", "a", "x"),
        ("cache.read K[0, step] >> x;", "K step", "x"),
        ("cache.write a >> K[i, 0];", "a i", "K"),
        ("cache.read P[i] >> x;", "P i", "x"),
        ("cache.reset K[i];", "i", "K"),
        ("cache.increment step;", "step", "step"),
        ("cache.decrement 3 step;", "step", "step"),
        ("assign h: f32;", "", "h"),
        ("barrier;", "", ""),
        ('scope "s" { op neg(a) >> x; op neg(x) >> y; }', "a x", "x y"),
        ("loop l (j in i..n) { op neg(K[j, step]) >> x; }", "K i n step", "x"),
        ("loop l (i in 0..2) { op neg(K[i, 0]) >> x; }", "K", "x"),
        ("loop l (i in 0..i) { op neg(a) >> x; }", "a i", "x"),
        ("branch flag one two;", "a b flag", "x y"),
        ("branch one;", "a", "x"),
        ("branch three;", "a", "x z"),
    ],
)
def test_what_a_node_reads_and_writes(node: str, reads: str, writes: str) -> None:
    blocks = "block one { op neg(a) >> x; return; } block two { op neg(b) >> y; return; }"
    blocks += " block three { branch one; op neg(a) >> z; return; }"
    assert effects(node, blocks) == (reads, writes)


def test_what_is_returned_and_handed_over_is_read() -> None:
    text = f"{DECLARED} block entry {{ yield a; await a; return x, y; }} block c {{ await a; yield a; }}"
    found = bound(text).effects
    assert [sorted(found[index].reads) for index in range(5)] == [["a"], ["a"], ["x", "y"], ["a"], ["a"]]
    assert all(not one.writes for one in found.values())


def test_a_chain_of_thousands_of_blocks_has_effects() -> None:
    chain = " ".join(f"block b{number} {{ branch b{number + 1}; return; }}" for number in range(5000))
    assert effects("branch b0;", f"{chain} block b5000 {{ op neg(a) >> x; return; }}") == ("a", "x")


# --- order ----------------------------------------------------------------------------------------------------------


def order(nodes: str) -> list[str]:
    """The dependencies of entry's nodes as text, but for those of its end."""
    ready = bound(f"{DECLARED} block entry {{ {nodes} return; }} block other {{ return; }}")
    entry = ready.graph.blocks["entry"]
    found = sorted(dependencies(ready, entry), key=lambda one: (one.before, one.after, one.reason))
    return [text(one) for one in found if one.after != entry.nodes[-1].index]


def text(one: Dependency) -> str:
    """``0-1 value x``."""
    return " ".join(filter(None, (f"{one.before}-{one.after}", one.reason, one.variable)))


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ("op neg(a) >> x; op neg(x) >> y;", ["0-1 value x"]),
        ("op neg(a) >> x; op neg(b) >> y;", []),
        ("op neg(x) >> y; op neg(a) >> x;", ["0-1 overwrite x"]),
        ("op neg(a) >> x; op neg(b) >> x;", ["0-1 overwrite x"]),
        ("op neg(a) >> x; op add(x, a) >> x;", ["0-1 value x"]),
        ("op neg(x) >> y; op neg(x) >> z; op neg(a) >> x;", ["0-2 overwrite x", "1-2 overwrite x"]),
        ("op neg(a) >> x; op neg(b) >> x; op neg(x) >> y;", ["0-1 overwrite x", "1-2 value x"]),
        ("cache.write a >> K[0, 0]; cache.write b >> K[1, 0];", ["0-1 overwrite K"]),
        ("cache.write a >> K[0, 0]; cache.read K[0, 0] >> x;", ["0-1 value K"]),
        ("cache.read K[step, 0] >> x; cache.increment step;", ["0-1 overwrite step"]),
        ("cache.increment step; cache.increment step;", ["0-1 value step"]),
        ("op neg(a) >> x; loop l (j in 0..2) { op add(x, y) >> y; }", ["0-1 value x"]),
        ("assign h: f32; op neg(a) >> h;", ["0-1 overwrite h"]),
    ],
)
def test_values_and_overwrites_keep_nodes_in_order(nodes: str, wanted: list[str]) -> None:
    assert order(nodes) == wanted


def test_nothing_crosses_a_barrier() -> None:
    nodes = "op neg(a) >> x; op neg(b) >> y; barrier; op neg(a) >> z; barrier;"
    assert order(nodes) == ["0-2 barrier", "1-2 barrier", "2-3 barrier", "2-4 barrier", "3-4 barrier"]


def test_branches_and_hand_overs_stay_where_they_are() -> None:
    assert order("op neg(a) >> x; branch other; op neg(b) >> y;") == ["0-1 order", "1-2 order"]
    assert order("branch other; branch other;") == ["0-1 order"]
    assert order("op neg(a) >> x; yield b; op neg(a) >> y;") == ["0-1 order", "1-2 order"]


@pytest.mark.parametrize("around", ['scope "s" {{ {} }}', "loop l (j in 0..2) {{ {} }}"])
def test_a_loop_or_scope_with_a_barrier_inside_is_one(around: str) -> None:
    nodes = f"op neg(a) >> x; {around.format('op neg(b) >> y; barrier;')} op neg(a) >> z;"
    assert order(nodes) == ["0-1 barrier", "1-4 barrier", "2-3 barrier"]
    assert order(nodes.replace("barrier;", "branch other;")) == ["0-1 order", "1-4 order", "2-3 order"]


def test_nodes_inside_a_loop_are_compared_with_each_other() -> None:
    nodes = "loop l (j in 0..2) { op neg(a) >> x; op neg(x) >> y; op neg(b) >> z; }"
    assert order(nodes) == ["1-2 value x"]


def test_a_dep_keeps_the_nearest_nodes_of_its_names_in_order() -> None:
    nodes = "op neg(a) >> x; op neg(b) >> y; dep after(neg) before(exp); op exp(a) >> z; op exp(b) >> K[0, 0];"
    assert order(nodes) == ["1-3 dep"]


def test_a_dep_names_every_kind_of_node_that_does_something() -> None:
    nodes = "cache.read K[0, 0] >> x; dep after(cache.read) before(cache.increment); cache.increment step;"
    assert order(nodes) == ["0-2 dep"]
    assert order("transfer a >> x; dep after(transfer) before(cache.reset); cache.reset K;") == ["0-2 dep"]


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ('scope "s" { op neg(a) >> x; } dep after(neg) before(exp); op exp(b) >> y;', ["0-3 dep"]),
        ('op neg(a) >> x; dep after(neg) before(exp); scope "s" { op exp(b) >> y; }', ["0-2 dep"]),
        ("op neg(a) >> x; loop l (j in 0..2) { dep after(neg) before(exp); op exp(b) >> y; }", ["0-1 dep"]),
        ("loop l (j in 0..2) { op neg(a) >> x; dep after(neg) before(exp); op exp(b) >> y; }", ["1-3 dep"]),
        ("loop l (j in 0..2) { op neg(a) >> x; dep after(neg) before(exp); } op exp(b) >> y;", ["0-3 dep"]),
    ],
)
def test_a_dep_on_a_node_inside_a_loop_or_scope_holds_for_what_surrounds_it(nodes: str, wanted: list[str]) -> None:
    assert order(nodes) == wanted


def test_the_end_of_a_block_comes_last() -> None:
    ready = bound(f"{DECLARED} block entry {{ op neg(a) >> x; op neg(b) >> y; return; }}")
    assert [text(one) for one in dependencies(ready, ready.graph.blocks["entry"])] == ["0-2 order", "1-2 order"]


# --- every order that respects the dependencies gives the same result -----------------------------------------------

NAMES = ("a", "b", "x", "y", "z")
node_texts = st.one_of(
    st.tuples(*[st.sampled_from(NAMES)] * 3).map(lambda names: f"op add({names[0]}, {names[1]}) >> {names[2]};"),
    st.tuples(st.sampled_from(NAMES), st.integers(0, 1)).map(lambda part: f"cache.write {part[0]} >> K[{part[1]}, 0];"),
    st.tuples(st.integers(0, 1), st.sampled_from(NAMES)).map(
        lambda part: f"cache.read K[{part[0]}, step] >> {part[1]};"
    ),
    st.just("cache.increment step;"),
    st.just("cache.reset K;"),
    st.just("barrier;"),
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(node_texts, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_nodes_moved_as_far_as_dependencies_allow_compute_the_same(nodes: list[str], random: Random) -> None:
    ready = bound(f"{DECLARED} block entry {{ {' '.join(nodes)} return; }}")
    before: dict[int, set[int]] = {index: set() for index in range(len(nodes) + 1)}
    for one in dependencies(ready, ready.graph.blocks["entry"]):
        before[one.after].add(one.before)
    left, moved = set(range(len(nodes))), []
    while left:
        moved.append(random.choice(sorted(index for index in left if not before[index] & left)))
        left.remove(moved[-1])
    assert results([nodes[index] for index in moved]) == results(nodes)


def results(nodes: list[str]) -> list[object]:
    """All variables after a step with these nodes."""
    executor = Simulator().make_executor(graph(f"{DECLARED} block entry {{ {' '.join(nodes)} return; }}"))
    executor.insert(a=1.5, b=-0.25, i=0, flag=False)
    executor.run_step()
    return [executor.fetch(name).tolist() for name in (*NAMES, "K", "step")]
