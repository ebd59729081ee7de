"""Every construct of the language in both dialects, and the graph JSON it becomes."""

from typing import Any

import pytest
from tests.lang.sketches import sketch as graph

from openinfer.ir import Graph
from openinfer.lang import parse

DECLARED = """
dynamic { x: f32[B, D]; flag: bool; }
volatile { y: f32[B, D]; h: f32[B, D]; W(l): f16[D] @pattern("W.{l}"); }
constant { eps: f32; w: f32[D]; }
persistent { step: i32; i: i32; j: u8; n: i64; }
persistent { A(r, c): f32[D] @table; K(t): f32[D] @table; M(p, q): f32[D, H] @auto_dim(p, q); }
"""


def statement(text: str) -> Any:
    """The kind of the one node that a statement becomes."""
    nodes = statements(text)
    assert len(nodes) == 1
    return nodes[0]["kind"]


def statements(text: str) -> list[Any]:
    found = graph(f"{DECLARED} block entry {{ {text} return; }} block ok {{ return; }} block bad {{ return; }}")
    nodes: list[Any] = found.to_json()["blocks"]["entry"]["nodes"]
    return nodes[:-1]


def variable(text: str, section: str) -> Any:
    return graph(f"{section} {{ {text} }} block entry {{ return; }}").to_json()["vars"]


def parameter(text: str) -> Any:
    """The JSON of a value, given as a parameter of an op."""
    return statement(f"op f(x, p={text}) >> y;")["Op"]["attrs"]["items"][0]["value"]


# --- values ---------------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "0": {"Int": 0},
    "007": {"Int": 7},
    "1_000_000": {"Int": 1_000_000},
    "0xFF": {"Int": 255},
    "0Xff_ff": {"Int": 65535},
    "0b1010_1010": {"Int": 170},
    "9223372036854775807": {"Int": 2**63 - 1},
    "9223372036854775808": {"UInt": 2**63},
    "18446744073709551615": {"UInt": 2**64 - 1},
    "-5": {"Int": -5},
    "-9223372036854775808": {"Int": -(2**63)},
    "--5": {"Int": 5},
    "-(-(5))": {"Int": 5},
    "1.5": {"Float": 1.5},
    "-1.5": {"Float": -1.5},
    "-0.0": {"Float": -0.0},
    "1e5": {"Float": 1e5},
    "1E+5": {"Float": 1e5},
    "1_0.2_5e-3": {"Float": 10.25e-3},
    "5e-324": {"Float": 5e-324},
    "inf": {"Float": "inf"},
    "-inf": {"Float": "-inf"},
    "nan": {"Float": "nan"},
    "true": {"Bool": True},
    "false": {"Bool": False},
    '""': {"Str": ""},
    r'"a \"b\" \\ \n \t \u00e9 \/"': {"Str": 'a "b" \\ \n \t é /'},
    '"é 漢字 // no comment"': {"Str": "é 漢字 // no comment"},
    "f32": {"DType": "F32"},
    "bool": {"DType": "Bool"},
    "t2": {"DType": "T2"},
    "f8e5m2": {"DType": "F8"},
    "eps": {"Var": "eps"},
    "(eps)": {"Var": "eps"},
    "alpha": {"Var": "alpha"},
    "D*(H+1)": {"Expr": "D*(H+1)"},
    "-D": {"Expr": "-D"},
    "3*4": {"Expr": "3*4"},
    "a-b-c": {"Expr": "a-b-c"},
    "a-(b-c)": {"Expr": "a-(b-c)"},
    "a + -b*c % 2": {"Expr": "a+(-b)*c%2"},
    "[]": {"IntList": []},
    "[1, -2, 0x3,]": {"IntList": [1, -2, 3]},
    "[1, D]": {"ExprList": ["1", "D"]},
    "[1.0, -2, inf]": {"FloatList": [1.0, -2.0, "inf"]},
    "[f32, i8]": {"DTypeList": ["F32", "I8"]},
}


@pytest.mark.parametrize("text", VALUES)
def test_a_value_reads_as(text: str) -> None:
    found = parameter(text)
    assert found == VALUES[text]
    assert repr(found) == repr(VALUES[text])


# --- statements -----------------------------------------------------------------------------------------------------


def op(inputs: list[Any], output: Any = "y", **attrs: Any) -> dict[str, Any]:
    items = [{"name": name, "value": value} for name, value in attrs.items()]
    return {"Op": {"op": "f", "inputs": inputs, "attrs": {"items": items}, "output": output}}


def single(base: str, *indices: Any) -> dict[str, Any]:
    return {"base": base, "indices": list(indices), "bracketed": True}


def at(value: Any) -> dict[str, Any]:
    return {"Single": _end(value)}


def cut(start: Any = None, end: Any = None) -> dict[str, Any]:
    return {"Slice": {"start": _end(start), "end": _end(end)}}


def _end(value: Any) -> Any:
    if value is None or isinstance(value, dict):
        return value
    return {"Lit": value} if isinstance(value, int) else {"Ident": value}


STATEMENTS: dict[str, Any] = {
    "assign t: f32;": {"Assign": {"name": "t", "dtype": "F32", "dims": []}},
    "assign t: f32[];": {"Assign": {"name": "t", "dtype": "F32", "dims": []}},
    "assign t: bf16[B, 3*D,];": {"Assign": {"name": "t", "dtype": "BF16", "dims": ["B", "3*D"]}},
    "assign t: f8e5m2 [ 2 ];": {"Assign": {"name": "t", "dtype": "F8", "dims": ["2"]}},
    "op f() >> y;": op([]),
    "op f(x, y) >> y;": op(["x", "y"]),
    "op f(x, W[l],) >> y, h;": op(["x", "W[l]"], ["y", "h"]),
    "op f(a=x, b=eps, c=w) >> y;": op(["a=x", "c=w"], b={"Var": "eps"}),
    "op f(x, acc=f32, b=y) >> A[i, j];": op(["x", "b=y"], "A[i, j]", acc={"DType": "F32"}),
    'op f(model["a.b"], q=model[fmt("k")]) >> y;': op(['model["a.b"]', 'q=model[fmt("k")]']),
    "y = op f(a=x);": op(["a=x"]),
    "op f(x, 1, -2.5, true) >> y;": op(["x", {"Int": 1}, {"Float": -2.5}, {"Bool": True}]),
    "op f(-inf, x, b=1.0) >> y[0, i..];": op([{"Float": "-inf"}, "x"], "y[0, i..]", b={"Float": 1.0}),
    "y, h = op f(x);": op(["x"], ["y", "h"]),
    "transfer -0x10 >> y[1, 0];": {"Transfer": {"src": {"Int": -16}, "dst": "y[1, 0]"}},
    "cache.write nan >> K[3];": {"CacheWrite": {"src": {"Float": "nan"}, "dst": single("K", at(3))}},
    "transfer x >> h;": {"Transfer": {"src": "x", "dst": "h"}},
    'transfer model["s"] >> K[3];': {"Transfer": {"src": 'model["s"]', "dst": "K[3]"}},
    "branch ok;": {"Branch": {"cond": None, "then_block": "ok", "else_block": None}},
    "branch flag ok bad;": {"Branch": {"cond": "flag", "then_block": "ok", "else_block": "bad"}},
    "barrier;": "Barrier",
    "cache.read step >> n;": {"CacheRead": {"src": {"base": "step", "indices": [], "bracketed": False}, "dst": "n"}},
    "cache . read\nA[i, j] >> y;": {"CacheRead": {"src": single("A", at("i"), at("j")), "dst": "y"}},
    "cache.write x >> K[i+1];": {"CacheWrite": {"src": "x", "dst": single("K", at({"Expr": "i+1"}))}},
    "cache.increment step;": {"CacheIncrement": {"target": "step", "amount": 1}},
    "cache.increment 5 step;": {"CacheIncrement": {"target": "step", "amount": 5}},
    "cache.decrement 0x10 step;": {"CacheDecrement": {"target": "step", "amount": 16}},
    "cache.increment -2 step;": {"CacheIncrement": {"target": "step", "amount": -2}},
    "cache.increment step step;": {"CacheIncrement": {"target": "step", "amount": {"Expr": "step"}}},
    "cache.increment 2*(step + B) step;": {"CacheIncrement": {"target": "step", "amount": {"Expr": "2*(step+B)"}}},
    "cache.decrement step;": {"CacheDecrement": {"target": "step", "amount": 1}},
    "cache.reset step;": {"CacheReset": {"target": {"base": "step", "indices": [], "bracketed": False}}},
    "cache.reset A;": {"CacheReset": {"target": {"base": "A", "indices": [], "bracketed": False}}},
    "cache.reset A[i];": {"CacheReset": {"target": single("A", at("i"))}},
    "cache.reset A[i, 3];": {"CacheReset": {"target": single("A", at("i"), at(3))}},
    "loop l (k in 0..num_layers) { }": {
        "Loop": {"name": "l", "index": "k", "start": "0", "end": "num_layers", "body": []}
    },
    "loop l (k in -1+i..(2*T)) { block body { } }": {
        "Loop": {"name": "l", "index": "k", "start": "-1+i", "end": "2*T", "body": []}
    },
    'scope "a \\"b\\"" { }': {"Scope": {"name": 'a "b"', "body": []}},
}
ACCESSES: dict[str, Any] = {
    "K[]": single("K"),
    "K[..]": single("K", cut()),
    "K[2..5]": single("K", cut(2, 5)),
    "K[2..]": single("K", cut(2)),
    "K[..5]": single("K", cut(None, 5)),
    "K[0..-3]": single("K", cut(0, -3)),
    "K[-3..]": single("K", cut(-3)),
    "K[step..step+1]": single("K", cut("step", {"Expr": "step+1"})),
    "A[i, ]": single("A", at("i"), cut()),
    "A[, j]": single("A", cut(), at("j")),
    "A[,]": single("A", cut(), cut()),
    "A[.., ..]": single("A", cut(), cut()),
    "A[1, 0..3]": single("A", at(1), cut(0, 3)),
    "A[0..3, 1]": single("A", cut(0, 3), at(1)),
    "M[i..j, step..n]": single("M", cut("i", "j"), cut("step", "n")),
    "M[i..j, ]": single("M", cut("i", "j"), cut()),
    "M[, 0x2..0b11]": single("M", cut(), cut(2, 3)),
    "M[i%2, j/2]": single("M", at({"Expr": "i%2"}), at({"Expr": "j/2"})),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_becomes_the_node(text: str) -> None:
    assert statement(text) == STATEMENTS[text]


@pytest.mark.parametrize("text", ACCESSES)
def test_brackets_choose(text: str) -> None:
    assert statement(f"cache.read {text} >> y;")["CacheRead"]["src"] == ACCESSES[text]


def test_return_has_names_or_none() -> None:
    found = graph("dynamic { a: f32; b: f32; } block entry { branch o; return a, b; } block o { return; }").to_json()
    assert found["blocks"]["entry"]["nodes"][1]["kind"] == {"Return": {"vars": ["a", "b"]}}
    assert found["blocks"]["o"]["nodes"][0]["kind"] == "Return"


def test_yield_and_await_make_a_consumer() -> None:
    text = "dynamic { x: f32; z: f32; } block entry { yield x, z; await x; return; } block c { await x, z; yield x; }"
    found = parse(text)
    assert found.problems == []
    kinds = [node["kind"] for node in found.graph.to_json()["blocks"]["c"]["nodes"]]
    assert kinds == [{"Await": {"vars": ["x", "z"]}}, {"Yield": {"vars": ["x"]}}]


def test_dep_names_ops_and_cache_nodes() -> None:
    nodes = statements("op f(x) >> y; dep after(f) before(cache . write); cache.write y >> K[0];")
    assert nodes[1]["kind"] == {"Dep": {"after": "f", "before": "cache.write"}}


def test_dep_names_transfers() -> None:
    nodes = statements("transfer x >> y; dep after(transfer) before(f); op f(x) >> y;")
    assert nodes[1]["kind"] == {"Dep": {"after": "transfer", "before": "f"}}


# --- declarations ---------------------------------------------------------------------------------------------------

VARIABLES: dict[tuple[str, str], dict[str, Any]] = {
    ("dynamic", "x: f32[B, D];"): {"kind": "Dynamic", "dtype": "F32", "dims": ["B", "D"]},
    ("inputs", "x : i32 [];"): {"kind": "Dynamic", "dtype": "I32", "dims": []},
    ("outputs", "x: f32[B];"): {"kind": "Volatile", "dims": ["B"]},
    ("volatile", "x: f32[B] @init(5.0);"): {"init": {"F32": 5.0}},
    ("volatile", "x: f32[B] @init(5);"): {"init": {"F32": 5.0}},
    ("volatile", "x: f16 @init(-inf);"): {"init": {"F16": "-inf"}},
    ("constant", "x: bool @init(true);"): {"init": {"Bool": True}, "kind": "Constant"},
    ("constant", "x: u64 @init(0xFFFF_FFFF_FFFF_FFFF);"): {"init": {"U64": 2**64 - 1}},
    ("constants", 'x: f32 @ref("a.b");'): {"ref_name": "a.b", "kind": "Constant"},
    ("constant", 'x(l, h): f16[D] @pattern("{h}.{l}");'): {"pattern": "{h}.{l}", "table_indices": ["l", "h"]},
    ("constant", 'x(l): f16 pattern("W.{l}");'): {"pattern": "W.{l}"},
    ("persistent", "x(l, t): f16[H] @table @fixed(l=24, t=2*T);"): {
        "table": True,
        "fixed": [["l", 24], ["t", "2*T"]],
        "auto_dim": [],
    },
    ("persistent", "x(r, c): f32[D, H] @auto_dim(r, c);"): {"table": False, "auto_dim": ["r", "c"]},
    ("persistent", "x(l, c): f32[H] @auto_dim(c) @table;"): {"table": True, "auto_dim": ["c"]},
    ("state", "x: buffer(f32, [B, T, D]);"): {"kind": "Persistent", "dims": ["B", "T", "D"], "table": False},
    ("state", "x: buffer(i8, []) @init(-3);"): {"dims": [], "init": {"I8": -3}},
    ("dynamic", 'x: f32 @layout @pin(3, [1], k="v");'): {
        "attrs": [
            {"name": "layout", "arguments": []},
            {
                "name": "pin",
                "arguments": [
                    {"name": None, "value": {"Int": 3}},
                    {"name": None, "value": {"IntList": [1]}},
                    {"name": "k", "value": {"Str": "v"}},
                ],
            },
        ]
    },
}


@pytest.mark.parametrize(("section", "text"), VARIABLES)
def test_a_declaration_says(section: str, text: str) -> None:
    assert VARIABLES[section, text].items() <= variable(text, section)["x"].items()


def test_sizes_are_fixed_or_bounded() -> None:
    found = graph("sizes { T <= 2048; S := 128; R := S*T-1; } sizes { } block entry { return; }").to_json()["sizes"]
    assert found == {"T": {"Bound": 2048}, "S": {"Fixed": 128}, "R": {"Fixed": "S*T-1"}}


def test_sections_may_be_repeated_and_come_after_blocks() -> None:
    found = graph("block entry { op f(a) >> b; return; } dynamic { a: f32; } volatile { } dynamic { b: f32; }")
    assert list(found.vars) == ["a", "b"]


# --- wrappers and layout --------------------------------------------------------------------------------------------

PLAIN = "dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op add(x, x) >> y; return y; }"
WRAPPED = [
    f"graph! {{ {PLAIN} }}",
    f"graph! {{ {PLAIN} }};",
    f"graph {{ {PLAIN} }}",
    f"graph!{{model: model,{PLAIN}}}",
    f"model: model, {PLAIN}",
    f"model: weights, {PLAIN}",
    f"let g = graph! {{ {PLAIN} }};",
    f"let (g, out) = graph! {{ model: model, {PLAIN} }};",
    PLAIN.replace("dynamic", "inputs").replace("volatile", "outputs"),
    PLAIN.replace(" ", "\n"),
    PLAIN.replace(" ", "\r\n"),
    PLAIN.replace(" ", "\r"),
    PLAIN.replace(" ", " \t\f"),
    PLAIN.replace(" ", "/* c */"),
    PLAIN.replace(" ", '/***/ // c } ; " /* \n'),
    f"// first\n{PLAIN}// last",
    PLAIN.replace("op add(x, x) >> y;", "y = op add(x, x);"),
    PLAIN.replace("f32[B]", "f32 [ B , ]"),
]


@pytest.mark.parametrize("text", WRAPPED)
def test_wrappers_dialects_and_layout_do_not_change_the_graph(text: str) -> None:
    found = parse(text)
    assert found.problems == []
    assert found.graph == graph(PLAIN)
    assert found.graph.to_json() == graph(PLAIN).to_json()


WORDS = (
    *("cache", "step", "start", "state", "sizes", "pattern", "graph", "let", "after", "before", "buffer", "index"),
    *("value", "inputs", "outputs", "dynamic", "volatile", "constant", "constants", "persistent", "read", "write"),
    *("reset", "entry", "table", "init", "ref", "fixed", "auto_dim", "axis", "body", "x", "_", "O0"),
)


@pytest.mark.parametrize("word", WORDS)
def test_a_contextual_word_can_name_anything(word: str) -> None:
    text = (
        f'sizes {{ {word} := 3; }} dynamic {{ {word}: i32; }} constant {{ k({word}): f32 @pattern("{{{word}}}"); }}'
        f"persistent {{ q({word}): f32[{word}] @table @fixed({word}={word}+1) @{word}_({word}={word}); }}"
        f"block entry with {{ {word} = {word} }} {{ assign {word}_: f32[{word}]; "
        f"loop {word} ({word} in 0..{word}) {{ cache.read q[{word}..{word}] >> {word}_; }}"
        f"op {word}({word}, k[{word}], {word}={word}_) >> {word} with {{ {word} = 1 }};"
        f"{word} = op {word}({word}); dep after({word}) before({word}); {word} = op {word}();"
        f"cache.reset q[{word}]; branch {word} {word}b {word}b; return {word}; }} block {word}b {{ return {word}; }}"
    )
    found = parse(text)
    assert [problem.render() for problem in found.problems] == []
    assert parse(found.graph.to_text()).graph == found.graph


# --- constraints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'op f(x) with { fuse = true, placement = "gpu" } >> y;',
        'op f(x) >> y with { fuse = true, placement = "gpu", };',
        'op f(x) with { fuse = true } >> y with { placement = "gpu" };',
        'y = op f(x) with { fuse = true, placement = "gpu" };',
    ],
)
def test_constraints_stand_before_or_after_the_outputs(text: str) -> None:
    wanted = [{"name": "fuse", "value": {"Bool": True}}, {"name": "placement", "value": {"Str": "gpu"}}]
    assert statements(text)[0]["constraints"] == wanted


def test_blocks_have_constraints_and_empty_ones_leave_no_trace() -> None:
    found = graph("block entry with { group = g, n = [1, 2] } { branch o; return; } block o with { } { return; }")
    blocks = found.to_json()["blocks"]
    wanted = [{"name": "group", "value": {"Var": "g"}}, {"name": "n", "value": {"IntList": [1, 2]}}]
    assert blocks["entry"]["constraints"] == wanted
    assert "constraints" not in blocks["o"]


def test_scopes_leave_their_path_on_the_nodes_inside() -> None:
    (outer,) = statements('scope "a" { loop l (k in 0..2) { scope "b" { barrier; } } }')
    loop = outer["kind"]["Scope"]["body"][0]
    inner = loop["kind"]["Loop"]["body"][0]
    assert (loop["scope"], inner["scope"]) == ("a", "a")
    assert inner["kind"]["Scope"]["body"][0]["scope"] == "a/b"


def test_node_indices_count_heads_before_bodies() -> None:
    nodes = statements("barrier; loop l (k in 0..2) { barrier; barrier; } barrier;")
    assert [node["index"] for node in nodes] == [0, 1, 4]
    assert [node["index"] for node in nodes[1]["kind"]["Loop"]["body"]] == [2, 3]


# --- the classic dialect --------------------------------------------------------------------------------------------


def test_a_classic_op_declares_a_variable_whose_type_is_not_known_yet() -> None:
    nodes = statements('t = op f(a=x, b=model["scale"]); t = op f(a=t);')
    assert [node["kind"] for node in nodes] == [
        {"Assign": {"name": "t", "dtype": None, "dims": None}},
        op(["a=x", 'b=model["scale"]'], "t"),
        op(["a=t"], "t"),
    ]


BUFFERS = "state { c: buffer(f32, [B, T, D]); s: buffer(f32, [N, N]); } dynamic { i: i32; h: f32[B, D]; v: f32[N]; }"


def effects(text: str) -> list[Any]:
    found = graph(f"{BUFFERS} block entry {{ {text} return; }}").to_json()
    return [node["kind"] for node in found["blocks"]["entry"]["nodes"][:-1]]


def test_an_effect_write_goes_to_the_only_slice_with_the_value_s_shape() -> None:
    assert effects("effect write(c, index=i, value=h);") == [
        {"CacheWrite": {"src": "h", "dst": single("c", cut(), at("i"), cut())}}
    ]


def test_an_effect_read_of_a_declared_variable_finds_the_axis_by_its_shape() -> None:
    assert effects("h = effect read(c, index=i - 1);") == [
        {"CacheRead": {"src": single("c", cut(), at({"Expr": "i-1"}), cut()), "dst": "h"}}
    ]


def test_an_effect_read_declares_a_new_variable_when_the_axis_is_named() -> None:
    assert effects("r = effect read(c, index=2, axis=-1);") == [
        {"Assign": {"name": "r", "dtype": "F32", "dims": ["B", "T"]}},
        {"CacheRead": {"src": single("c", cut(), cut(), at(2)), "dst": "r"}},
    ]


def test_an_effect_names_its_axis_where_two_would_do() -> None:
    assert effects("effect write(s, axis=1, value=v, index=i);") == [
        {"CacheWrite": {"src": "v", "dst": single("s", cut(), at("i"))}}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "effect write(s, index=i, value=v);",
        "v = effect read(s, index=i);",
        "r = effect read(c, index=i);",
        "effect write(c, index=i, value=v);",
        "effect write(c, index=i, value=h, axis=3);",
        "effect write(c, index=i, value=h, axis=1.0);",
    ],
)
def test_an_effect_whose_axis_cannot_be_told_is_refused(text: str) -> None:
    problems = parse(f"{BUFFERS} block entry {{ {text} return; }}").problems
    assert [str(problem.code) for problem in problems] == ["E506"]


@pytest.mark.parametrize("value", ["1.5", '"a"', "true", "f32", "[1]", "inf"])
def test_an_effect_s_index_is_an_integer(value: str) -> None:
    assert parse(f"{BUFFERS} block entry {{ effect write(c, index={value}, value=h); return; }}").problems != []


def test_a_loop_body_may_be_wrapped_in_a_block() -> None:
    assert (
        statements("loop l (k in 0..2) { block body { barrier; } }")[0]["kind"]
        == (statements("loop l (k in 0..2) { barrier; }")[0]["kind"])
    )


def test_both_dialects_can_be_mixed_and_print_as_the_current_one() -> None:
    found = graph(f"{BUFFERS} block entry {{ effect write(c, index=i, value=h); t = op f(h); return; }}")
    assert found.to_text() == (
        "dynamic {\n    i: i32;\n    h: f32[B, D];\n    v: f32[N];\n}\n\n"
        "persistent {\n    c: f32[B, T, D];\n    s: f32[N, N];\n}\n\n"
        "block entry {\n    cache.write h >> c[, i, ];\n    t = op f(h);\n    return;\n}\n"
    )


ALL = [
    *(
        f"{DECLARED} block entry {{ {text} return; }} block ok {{ return; }} block bad {{ return; }}"
        for text in STATEMENTS
    ),
    *(f"{DECLARED} block entry {{ cache.read {text} >> y; return; }}" for text in ACCESSES),
    *(f"{section} {{ {text} }} block entry {{ return; }}" for section, text in VARIABLES),
    *WRAPPED,
]


@pytest.mark.parametrize("text", ALL)
def test_everything_above_prints_to_text_and_json_that_give_it_back(text: str) -> None:
    found = graph(text)
    assert graph(found.to_text()) == found
    assert graph(found.to_text()).to_text() == found.to_text()
    assert Graph.from_json(found.to_json()) == found
