"""A document that is not a graph is refused with a code and the way to the mistake; nothing else ever happens."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from time import process_time
from typing import Any

import pytest
from tests.everything import HAS_EVERYTHING
from tests.ir.foreign import DOCUMENTS, load

from openinfer.errors import Code, GraphError
from openinfer.ir import Graph
from openinfer.lang import graph, parse

BIG = """
sizes { T <= 2048; S := 3*T+1; }
dynamic { x: f32[B, D]; flag: bool; }
volatile { y: f32[B] @init(5.0) @ref("why"); W(l): f16[D] @pattern("W.{l}") @layout(1, a="b", c=[1, 2]); }
constant { eps: f64 @init(inf); n: u64 @init(18446744073709551615); w: f32[D]; }
persistent {
    step: i32 @init(0);
    K(l, t): f16[H, Dh] @table @fixed(l=24, t=2*T);
    M(r, c): f32[D, H] @auto_dim(r, c);
}
block entry with { placement = "gpu" } {
    assign h: f32[B, D];
    op matmul(x, W[1], -0.5, a=w, acc=f32, e=eps, f=1.5, g=-inf, i=-3, l=[1, D], s="q", t=true, v=[0.5], ts=[f32, i8])
        >> h, y with { fuse = true };
    u = op relu(model["scale"]);
    loop layers (i in 0..T) {
        scope "attention" {
            transfer model[fmt("W.{i}")] >> h;
            cache.read K[i, 0..-3] >> h;
            cache.write h >> K[i+1, step];
        }
    }
    dep after(relu) before(cache.reset);
    cache.reset K[1];
    cache.increment 5 step;
    cache.decrement step;
    barrier;
    branch flag ok bad;
    branch ok;
    yield x;
    await x;
    return y, h;
}
block ok { return; }
block bad { return; }
block worker { await x; op relu(x) >> x; yield x; }
"""
OTHER_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, "", "x y", [], {}, 10**30, "op", "x", "T", "inf", "a=b", "x[", "..", "f32", "F32"),
    *([[[[[]]]]], {"a": {"a": {"a": {}}}}, {"Int": 1}, [1], ["x"], "\ud800", "é", "Return", "-" * 300),
)
Keys = tuple[str | int, ...]


@cache
def big() -> str:
    return json.dumps(graph(BIG).to_json())


def leaves(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """The way to every value, inner ones too."""
    yield keys
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        yield from leaves(item, (*keys, key))


def holder(document: Any, keys: Keys) -> Any:
    for key in keys[:-1]:
        document = document[key]
    return document


def exists(document: Any, path: str) -> bool:
    """Whether a reported path leads somewhere in a document; an empty last part is the inside of a plain tag."""
    if len(path) >= 300:
        return True  # a long path is cut
    for part in path.strip("/").split("/") if path != "/" else ():
        if isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            return False
    return True


def judge(document: Any) -> Graph | None:
    """The graph of a document that is accepted and survives; None where it is refused as it should be."""
    try:
        found = Graph.from_json(document)
    except GraphError as error:
        for problem in error.diagnostics:
            assert problem.code in Code
            assert len(problem.render()) < 2_000
            assert problem.render().splitlines()[0].startswith(f"error[{problem.code}]: ")
            if problem.code is Code.BAD_DOCUMENT:
                path = problem.facts()["path"]
                assert isinstance(path, str)
                assert isinstance(document, str | bytes) or exists(document, path or "/"), problem.render()
        return None
    again = Graph.from_json(found.to_json())
    assert again == found
    assert again.to_json() == found.to_json()
    return found


def changed(document: Any, step: int) -> Iterator[Any]:
    """The document with one value replaced, or one key removed or renamed: each key, and each value in turn by another
    one in so many of the other values."""
    document = deepcopy(document)
    for place, keys in enumerate(list(leaves(document))[1:]):
        inside, key = holder(document, keys), keys[-1]
        kept = inside[key]
        for other in OTHER_VALUES[place % step :: step]:
            inside[key] = other
            yield document
        inside[key] = kept
        if isinstance(inside, dict):
            saved = dict(inside)
            del inside[key]
            yield document
            inside[f"{key}_"] = kept
            yield document
            inside.clear()
            inside.update(saved)


STEP = 1 if HAS_EVERYTHING else 5
"""For the large document, of whose values many are alike; in ``make fuzz-lang`` by each."""


def documents() -> dict[str, Callable[[], Any]]:
    return {"ours": lambda: json.loads(big()), **{name: partial(load, name) for name in DOCUMENTS}}


@pytest.mark.parametrize("name", documents())
def test_any_one_change_of_a_document_is_refused_with_its_path_or_can_be_printed_and_parsed(name: str) -> None:
    refused = 0
    for document in changed(documents()[name](), STEP if name == "ours" else 1):
        found = judge(document)
        if found is None:
            refused += 1
            continue
        text = found.to_text()
        again = parse(text)
        assert [problem.render() for problem in again.problems if not problem.code.is_warning] == [], text
        assert again.graph == found, text
    assert refused > 100


def without(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


REFUSED_TEXTS: dict[str, tuple[Callable[[str], str], str]] = {
    "a duplicate key at the top": (lambda t: without(t, '"version": 1', '"version": 1, "version": 1'), "version"),
    "a duplicate variable": (lambda t: without(t, '"vars": {', '"vars": {"x": null, "x": 1, '), "/vars"),
    "a duplicate key in a node": (
        lambda t: without(t, '"index": 3,', '"index": 3, "index": 3,'),
        "/blocks/entry/nodes/3",
    ),
    "a NaN literal": (lambda t: without(t, '{"F32": 5.0}', '{"F32": NaN}'), "/vars/y/init/F32"),
    "an Infinity literal": (lambda t: without(t, '{"F32": 5.0}', '{"F32": Infinity}'), "/vars/y/init/F32"),
    "a -Infinity literal": (lambda t: without(t, '{"F32": 5.0}', '{"F32": -Infinity}'), "/vars/y/init/F32"),
    "a number too large for a float": (lambda t: without(t, '{"F32": 5.0}', '{"F32": 1e999}'), "/vars/y/init/F32"),
    "an unknown key at the top": (lambda t: without(t, '"version": 1', '"verzion": 1'), "verzion"),
    "an unknown key in a variable": (lambda t: without(t, '"ref_name": "why"', '"ref": "why"'), "/vars/y"),
    "an unknown version": (lambda t: without(t, '"version": 1', '"version": 2'), "/version"),
    "a wrong next_index": (lambda t: re.sub(r'"next_index": \d+', '"next_index": "x"', t), "/next_index"),
    "a wrong scope": (lambda t: without(t, '"scope": "attention"', '"scope": 7'), "/scope"),
    "a barrier that holds something": (lambda t: without(t, '"Barrier"', '{"Barrier": {"x": 1}}'), "Barrier"),
    "an attribute of our own among the unknown ones": (lambda t: without(t, '"layout"', '"init"'), "/vars/W/attrs/0"),
}


@pytest.mark.parametrize("name", REFUSED_TEXTS)
def test_a_mistake_is_refused_and_located(name: str) -> None:
    change, place = REFUSED_TEXTS[name]
    with pytest.raises(GraphError) as caught:
        Graph.from_json(change(big()))
    assert caught.value.code in (Code.BAD_JSON, Code.BAD_DOCUMENT)
    assert place in str(caught.value)


def deep_loops(depth: int) -> Any:
    uuid = "3f0c9a52-5f3e-4c0e-9a55-0a3c0c5f7a10"
    inner: list[Any] = []
    for level in range(depth):
        loop = {"name": "l", "index": f"k{level}", "start": "0", "end": "1", "body": inner}
        inner = [{"index": 0, "uuid": uuid, "kind": {"Loop": loop}}]
    nodes = [*inner, {"index": 0, "uuid": uuid, "kind": "Return"}]
    return {"vars": {}, "blocks": {"entry": {"name": "entry", "nodes": nodes}}}


def with_dim(dim: str) -> Any:
    document = load("minimal")
    document["vars"]["a"]["dims"] = [dim]
    return document


MONSTERS: dict[str, Callable[[], Any]] = {
    "100,000 nested arrays": lambda: "[" * 100_000 + "]" * 100_000,
    "100,000 nested arrays, not closed": lambda: "[" * 100_000,
    "100,000 nested objects": lambda: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "100,000 nested arrays inside a value": lambda: without(big(), '"why"', "[" * 100_000 + "]" * 100_000),
    "10 MB of string": lambda: without(big(), '"why"', json.dumps("x" * 10_000_000)),
    "10 MB of name": lambda: without(big(), '"layout"', json.dumps("x" * 10_000_000)),
    "10 MB of key": lambda: without(big(), '"version"', json.dumps("x" * 10_000_000)),
    "10 MB of operand": lambda: with_dim("x" * 10_000_000),
    "10 MB of dtype": lambda: without(big(), '"F64"', json.dumps("F" * 10_000_000)),
    "an integer of 10^6 digits": lambda: without(big(), '"version": 1', '"version": ' + "1" * 1_000_000),
    "a float of 10^6 digits": lambda: without(big(), '{"F32": 5.0}', '{"F32": 0.' + "1" * 1_000_000 + "}"),
    "an exponent of 10^6 digits": lambda: without(big(), '{"F32": 5.0}', '{"F32": 1e' + "1" * 1_000_000 + "}"),
    "an integer object of 10^5 digits": lambda: {**load("minimal"), "version": 10**100_000},
    "a lone surrogate in a string": lambda: without(big(), '"why"', '"\\ud800"'),
    "a lone surrogate in a key": lambda: without(big(), '"version"', '"\\udc00"'),
    "a lone surrogate in the text itself": lambda: without(big(), '"why"', '"\ud800"'),
    "bytes that are not UTF-8": lambda: big().encode().replace(b"why", b"\xff\xfe"),
    "UTF-16 bytes": lambda: big().encode("utf-16"),
    "a byte order mark": lambda: b"\xef\xbb\xbf" + big().encode(),
    "nothing": lambda: "",
    "NUL bytes": lambda: b"\0\0\0\0",
    "a plain number": lambda: "1",
    "a list": list,
    "null": lambda: None,
    "keys that are no strings": lambda: {1: 2, None: 3},
    "values that JSON does not have": lambda: {"vars": {1, 2}, "blocks": object()},
    "100,000-fold parentheses": lambda: with_dim("(" * 4_000 + "B" + ")" * 4_000),
    "5,000 minuses": lambda: with_dim("-" * 5_000 + "B"),
    "a sum of 4,000 terms": lambda: with_dim("+".join("B" * 4_000)),
    "loops nested 190 deep": lambda: deep_loops(190),
    "loops nested 198 deep": lambda: deep_loops(198),
    "loops nested 199 deep": lambda: deep_loops(199),
    "loops nested 200 deep": lambda: deep_loops(200),
    "loops nested 300 deep": lambda: deep_loops(300),
    "loops nested 3,000 deep": lambda: deep_loops(3_000),
    "an expression 199 deep": lambda: with_dim("1-(" * 199 + "B" + ")" * 199),
    "an integer of 20 digits in an expression": lambda: with_dim("99999999999999999999"),
}


SECONDS = 20.0
"""Of the processor: less than a second is usual."""


@pytest.mark.parametrize("name", MONSTERS)
def test_a_monstrous_document_is_refused_or_survives_in_no_time(name: str) -> None:
    document = MONSTERS[name]()
    start = process_time()
    judge(document)
    assert process_time() - start < SECONDS


@pytest.mark.parametrize("name", MONSTERS)
def test_a_monstrous_document_that_loads_can_also_be_printed_and_parsed(name: str) -> None:
    try:
        found = Graph.from_json(MONSTERS[name]())
    except GraphError:
        return
    again = parse(found.to_text())
    assert [problem.render() for problem in again.problems if not problem.code.is_warning] == []
    assert again.graph == found


UNPRINTABLE: dict[str, dict[str, Any]] = {
    "a type that only an op could tell, without the op": {
        "nodes": [{"Assign": {"name": "t", "dtype": None, "dims": None}}, "Return"]
    },
    "a type that only an op could tell, for another variable": {
        "nodes": [
            {"Assign": {"name": "t", "dtype": None, "dims": None}},
            {"Op": {"op": "add", "inputs": ["x"], "attrs": {"items": []}, "output": "x"}},
            "Return",
        ]
    },
    "types that an op tells in another order than its results have": {
        "nodes": [
            {"Assign": {"name": "t", "dtype": None, "dims": None}},
            {"Assign": {"name": "u", "dtype": None, "dims": None}},
            {"Op": {"op": "topk", "inputs": ["x"], "attrs": {"items": []}, "output": ["u", "t"]}},
            "Return",
        ]
    },
    "a dep on a transfer": {
        "nodes": [
            {"Transfer": {"src": "x", "dst": "a"}},
            {"Dep": {"after": "transfer", "before": "add"}},
            {"Op": {"op": "add", "inputs": ["x"], "attrs": {"items": []}, "output": "x"}},
            "Return",
        ]
    },
    "a named input before one by position": {
        "nodes": [{"Op": {"op": "add", "inputs": ["a=x", "x"], "attrs": {"items": []}, "output": "x"}}, "Return"]
    },
    "two inputs of one name": {
        "nodes": [{"Op": {"op": "add", "inputs": ["a=x", "a=x"], "attrs": {"items": []}, "output": "x"}}, "Return"]
    },
    "a scalar constant as a named input": {
        "nodes": [{"Op": {"op": "add", "inputs": ["a=c"], "attrs": {"items": []}, "output": "x"}}, "Return"]
    },
    "a variable as a parameter": {
        "nodes": [
            {
                "Op": {
                    "op": "add",
                    "inputs": [],
                    "attrs": {"items": [{"name": "a", "value": {"Var": "x"}}]},
                    "output": "x",
                }
            },
            "Return",
        ]
    },
    "constraints on a barrier": {"nodes": ["Barrier", "Return"], "constraints": [{"name": "a", "value": {"Int": 1}}]},
    "a parameter with a reserved name": {
        "nodes": [
            {
                "Op": {
                    "op": "add",
                    "inputs": [],
                    "attrs": {"items": [{"name": "loop", "value": {"Int": 1}}]},
                    "output": "x",
                }
            },
            "Return",
        ]
    },
    "an index twice": {"table_indices": ["i", "i"]},
    "a bound twice": {"fixed": [["i", 1], ["i", 2]]},
    "an attribute twice": {"attrs": [{"name": "p", "arguments": []}, {"name": "p", "arguments": []}]},
    "an argument twice": {
        "attrs": [{"name": "p", "arguments": [{"name": "a", "value": {"Int": 1}}, {"name": "a", "value": {"Int": 2}}]}]
    },
    "a variable named like the alias of a dtype": {
        "rename": "f8e5m2",
        "nodes": [{"Op": {"op": "add", "inputs": ["f8e5m2"], "attrs": {"items": []}, "output": "f8e5m2"}}, "Return"],
    },
}


@pytest.mark.parametrize("name", UNPRINTABLE)
def test_what_text_cannot_say_is_refused_or_brought_into_a_form_it_can(name: str) -> None:
    case = UNPRINTABLE[name]
    document = load("minimal")
    scalar = {"name": "c", "kind": "Constant", "dtype": "F32", "dims": [], "init": {"F32": 1.0}}
    table = {"name": "K", "kind": "Persistent", "dtype": "F32", "dims": [], "table": True, "table_indices": ["i"]}
    table |= {key: case[key] for key in ("table_indices", "fixed", "attrs") if key in case}
    document["vars"] |= {"c": scalar, "K": table}
    if "rename" in case:
        document["vars"][case["rename"]] = {**document["vars"].pop("a"), "name": case["rename"]}
    if "nodes" in case:
        uuid = "3f0c9a52-5f3e-4c0e-9a55-0a3c0c5f7a10"
        nodes = [{"index": index, "uuid": uuid, "kind": kind} for index, kind in enumerate(case["nodes"])]
        nodes[0] |= {"constraints": case["constraints"]} if "constraints" in case else {}
        document["blocks"]["entry"]["nodes"] = nodes
    found = judge(document)
    if found is not None:
        assert parse(found.to_text()).problems == []
        assert parse(found.to_text()).graph == found
