"""``GraphBuilder`` gives the graph that the same text gives."""

from typing import Any

import numpy as np
import pytest

from openinfer import Graph, GraphBuilder, GraphError, dtype_of, graph
from openinfer.errors import Code
from openinfer.ir.builder import Var
from openinfer.ir.expr import Num, Ref

TEXT = """
sizes { T <= 2048; S := 2*T; }
dynamic { x: f32[B, 3*D]; }
volatile { W(l): f32[D, D] @pattern("W.{l}"); c: bool; }
constant { alpha: f32 @ref("a"); table: f32[D]; }
persistent { step: i32 @init(0); K(l, t): f16[H] @table @fixed(l=24, t=T); M(r): f32[D, H] @auto_dim(r); }
block entry with { group = "g" } {
    assign h: f32[B, D];
    assign k: f16[H];
    transfer x >> h;
    loop layers (l in 0..num_layers) {
        scope "attention" {
            cache.read K[l, step] >> k;
            op matmul(h, W[l], acc=f32) >> h with { fuse = true };
        }
        cache.write k >> K[l, step+1];
    }
    op relu(x=h, negative_slope=alpha, clamp_max=6.0, axes=[1, 2], shape=[B, 3*D], to=f16, s="q") >> h;
    op topk(h, k=3, scales=[1.0, 2.5], acc=[f32, f32], flag=true) >> h, k;
    branch c good bad;
    branch good;
    barrier;
    dep after(relu) before(cache.increment);
    cache.increment 5 step;
    cache.decrement step;
    cache.reset K[l];
    yield h;
    await h;
    return h;
}
block good { op mul(model["s"], h) >> h; return; }
block bad { return; }
block consumer { await h; op neg(h) >> h; yield h; }
"""


def declarations(build: GraphBuilder) -> None:
    build.size("T", 2048, "<=")
    build.size("S", "2*T")
    build.variable("dynamic", "x", "f32", ["B", "3*D"])
    build.variable("volatile", "W", "f32", ["D", "D"], indices=["l"], pattern="W.{l}")
    build.variable("volatile", "c", "bool")
    build.variable("constant", "alpha", "f32", ref="a")
    build.variable("constant", "table", "f32", [Ref("D")])
    build.variable("persistent", "step", "i32", init=0)
    build.variable("persistent", "K", "f16", ["H"], indices=["l", "t"], table=True, fixed={"l": 24, "t": "T"})
    build.variable("persistent", "M", "f32", ["D", "H"], indices=["r"], auto_dim=["r"])


def entry(build: GraphBuilder) -> None:
    build.assign("h", "f32", ["B", "D"])
    build.assign("k", dtype_of("f16"), ["H"])
    build.transfer("x", "h")
    with build.loop("layers", "l", 0, "num_layers"):
        with build.scope("attention"):
            build.cache_read("K[l, step]", "k")
            build.op("matmul", "h", "W[l]", out="h", params={"acc": dtype_of("f32")}, constraints={"fuse": True})
        build.cache_write("k", "K[l, step+1]")
    params: dict[str, Any] = {"clamp_max": 6.0, "axes": [1, 2], "shape": ["B", "3*D"], "to": dtype_of("f16"), "s": "q"}
    build.op("relu", out="h", named={"x": "h", "negative_slope": "alpha"}, params=params)
    more: dict[str, Any] = {"k": 3, "scales": [1.0, 2.5], "acc": [dtype_of("f32")] * 2, "flag": True}
    build.op("topk", "h", out=["h", "k"], params=more)
    build.branch("good", "c", "bad")
    build.branch("good")
    build.barrier()
    build.dep("relu", "cache.increment")
    build.cache_increment("step", 5)
    build.cache_decrement("step")
    build.cache_reset("K[l]")
    build.yield_("h")
    build.await_("h")
    build.return_("h")


def built() -> Graph:
    build = GraphBuilder()
    declarations(build)
    with build.block("entry", {"group": "g"}):
        entry(build)
    with build.block("good"):
        build.op("mul", 'model["s"]', "h", out="h")
        build.return_()
    with build.block("bad"):
        build.return_()
    with build.block("consumer"):
        build.await_("h")
        build.op("neg", "h", out="h")
        build.yield_("h")
    return build.build()


def test_everything_the_language_has_can_be_built_and_equals_the_text() -> None:
    assert built() == graph(TEXT)
    assert built().to_text() == graph(TEXT).to_text()
    assert built().to_json() == graph(TEXT).to_json()


def test_a_declared_variable_given_by_name_is_an_input() -> None:
    text = "dynamic { x: f32; } volatile { y: f32; } block entry { op sub(b=x, a=y) >> y; return; }"
    build = GraphBuilder()
    build.variable("dynamic", "x", "f32")
    build.variable("volatile", "y", "f32")
    with build.block("entry"):
        build.op("sub", named={"b": "x", "a": "y"}, out="y")
        build.return_()
    assert build.build() == graph(text)
    assert graph(text).to_json()["blocks"]["entry"]["nodes"][0]["kind"]["Op"]["inputs"] == ["b=x", "a=y"]


def test_equal_nodes_in_different_places_have_different_uuids() -> None:
    nodes = graph("volatile { y: f32; } block entry { op neg(y) >> y; op neg(y) >> y; return; }").walk()
    assert len({node.uuid for node in nodes}) == 3


def test_a_constant_can_be_the_value_of_a_parameter() -> None:
    build = GraphBuilder()
    build.variable("constant", "alpha", "f32")
    build.variable("volatile", "y", "f32")
    with build.block("entry"):
        build.op("relu", "y", out="y", params={"negative_slope": Var("alpha"), "k": Num(3)})
        build.return_()
    text = "constant { alpha: f32; } volatile { y: f32; } "
    text += "block entry { op relu(y, negative_slope=alpha, k=3) >> y; return; }"
    assert build.build() == graph(text)


def test_numpy_numbers_are_numbers() -> None:
    build = GraphBuilder()
    build.variable("volatile", "y", "f32", [np.int64(3)], init=np.float32(1.5))
    with build.block("entry"):
        build.op("relu", "y", out="y", params={"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)})
        build.return_()
    text = "volatile { y: f32[3] @init(1.5); } block entry { op relu(y, a=3, b=0.5, c=true) >> y; return; }"
    assert build.build() == graph(text)


IMPOSSIBLE: dict[str, Any] = {
    "a variable with a space": lambda build: build.variable("volatile", "a b", "f32"),
    "a reserved word": lambda build: build.variable("volatile", "loop", "f32"),
    "an op with a space": lambda build: build.op("f g", "y", out="y"),
    "a parameter with a space": lambda build: build.op("f", "y", out="y", params={"a b": 1}),
    "no output": lambda build: build.op("f", "y", out=[]),
    "nothing to yield": lambda build: build.yield_(),
    "an amount that is no integer": lambda build: build.cache_increment("n", 1.5),
    "a true amount": lambda build: build.cache_increment("n", True),
    "a size too large": lambda build: build.assign("t", "f32", [2**70]),
    "a size that is no integer": lambda build: build.assign("t", "f32", [1.5]),
    "a bound that is nothing": lambda _: None,
    "a mixed list": lambda build: build.op("f", "y", out="y", params={"p": [dtype_of("f32"), 1]}),
    "a list with a float and a name": lambda build: build.op("f", "y", out="y", params={"p": [1.5, "D"]}),
    "a list with nothing": lambda build: build.op("f", "y", out="y", params={"p": [1, None]}),
    "a list of booleans": lambda build: build.op("f", "y", out="y", params={"p": [True, 2]}),
    "a value that is nothing": lambda build: build.op("f", "y", out="y", params={"p": None}),
    "half a surrogate pair": lambda build: build.op("f", "y", out="y", params={"p": "\ud800"}),
    "an operand that is a list": lambda build: build.transfer(["y"], "y"),
    "a scope that is a number": lambda _: None,
    "a size twice": lambda build: [build.size("T", 1), build.size("T", 2)],
    "a strange relation": lambda build: build.size("T", 1, "=="),
    "a strange memory kind": lambda build: build.variable("static", "a", "f32"),
    "a reference that is a number": lambda build: build.variable("constant", "a", "f32", ref=3),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_text_cannot_say_cannot_be_built(name: str) -> None:
    build = GraphBuilder()
    build.variable("volatile", "y", "f32")
    build.variable("persistent", "n", "i32")

    def attempt() -> None:
        with build.block("entry"):
            IMPOSSIBLE[name](build)
            if name.startswith("a scope"):
                with build.scope(3):  # type: ignore[arg-type]
                    build.barrier()
            if name.startswith("a bound"):
                with build.loop("l", "i", None, 3):  # type: ignore[arg-type]
                    build.barrier()
            build.return_()
        build.build()

    with pytest.raises(GraphError):
        attempt()


def test_structural_problems_are_raised_together() -> None:
    build = GraphBuilder()
    with build.block("entry"):
        build.op("add", "nobody", "noone", out="nothing")
    with pytest.raises(GraphError) as caught:
        build.build()
    codes = [problem.code for problem in caught.value.diagnostics]
    assert codes == [Code.NO_TERMINATOR, *[Code.UNKNOWN_VARIABLE] * 3]


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        (lambda build: build.op("add", "x", out="y"), Code.NO_ENTRY),
        (lambda build: build.variable("volatile", "a", "f32", ["B+"]), Code.SYNTAX),
        (lambda build: build.variable("volatile", "a", "f33"), Code.UNKNOWN_DTYPE),
        (lambda build: build.variable("volatile", "a", "i4", init=9), Code.BAD_ATTRIBUTE),
        (lambda build: [build.variable("volatile", "a", "i4") for _ in range(2)], Code.DUPLICATE_DECLARATION),
        (lambda build: [build.block("b").__enter__() for _ in range(2)], Code.DUPLICATE_DECLARATION),
    ],
)
def test_mistakes_are_coded_errors(mistake: Any, code: Code) -> None:
    from openinfer import OpenInferError

    with pytest.raises(OpenInferError) as caught:
        mistake(GraphBuilder())
    assert caught.value.code == code


# --- inference and keywords -------------------------------------------------------------------------------------------

INFERRED = """
sizes { T <= 8; }
dynamic { x: f32[T, 12]; }
constant { eps: f32 @init(0.5); }
persistent { n: i32; }
block entry {
    split_1, split_2, split_3 = op split(x, axis=1, sizes=[4, 4, T]);
    scores = op matmul(split_1, split_2, transpose_b=true);
    softmax_4 = op softmax(scores, axis=-1) with { fuse = false };
    loop again (l in 0..3) {
        cast_5 = op cast(l, to=f32);
        op fma(softmax_4, cast_5, eps) >> softmax_4;
        cache.increment 2*l n;
    }
    low, high = op split(x, axis=0);
    add_6 = op add(a=softmax_4, b=0.5);
    relu_7 = op relu(add_6[0, ], negative_slope=eps, approximate="tanh");
    transfer true >> add_6[0, 0];
    return add_6, relu_7;
}
"""


def test_ops_without_a_place_for_their_results_infer_them() -> None:
    build = GraphBuilder()
    build.size("T", 8, "<=")
    x = build.variable("dynamic", "x", "f32", ["T", 12])
    eps = build.variable("constant", "eps", "f32", init=0.5)
    n = build.variable("persistent", "n", "i32")
    with build.block("entry"):
        q, k, _v = build.op("split", x, axis=1, sizes=[4, 4, "T"], results=3)
        scores = build.op("matmul", q, k, transpose_b=True, results="scores")
        s = build.op("softmax", scores, axis=-1, constraints={"fuse": False})
        with build.loop("again", "l", 0, 3) as index:
            factor = build.op("cast", index, to="f32")
            build.op("fma", s, factor, eps, out=s)
            build.cache_increment(n, "2*l")
        assert build.op("split", x, axis=0, results=["low", "high"]) == ("low", "high")
        y = build.op("add", a=s, b=0.5)
        z = build.op("relu", f"{y}[0, ]", negative_slope=eps, approximate="tanh")
        build.transfer(True, f"{y}[0, 0]")
        build.return_(y, z)
    assert build.build() == graph(INFERRED)


def test_names_of_inferred_results_leave_out_those_of_variables() -> None:
    build = GraphBuilder()
    build.variable("dynamic", "relu_1", "f32")
    with build.block("entry"):
        assert build.op("relu", "relu_1") == "relu_2"
        build.return_()
    build.build()


@pytest.mark.parametrize("results", [0, "y", ["t", "t"]])
def test_results_are_new_names_and_at_least_one(results: Any) -> None:
    build = GraphBuilder()
    y = build.variable("volatile", "y", "f32")

    def attempt() -> None:
        with build.block("entry"):
            build.op("split", y, results=results)
            build.return_()
        build.build()

    with pytest.raises(GraphError):
        attempt()


def test_results_go_to_one_place() -> None:
    build = GraphBuilder()
    y = build.variable("volatile", "y", "f32")
    with build.block("entry"), pytest.raises(GraphError):
        build.op("relu", y, out=y, results="t")  # type: ignore[call-overload]
