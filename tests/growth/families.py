"""Graphs that grow: each family is a text for a number, about in proportion to it.

Some come with the names of model tensors, all f32[8, 8].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_DEPTH = 190
"""Blocks, loops and brackets inside each other are refused from 200 on."""


@dataclass(frozen=True)
class Family:
    """A way for a graph to grow."""

    text: Callable[[int], str]
    tensors: Callable[[int], Sequence[str]] = lambda _: ()
    most: int | None = None
    """The largest number the language allows, where there is one."""


def many(form: str, count: int, separator: str = "") -> str:
    """The form once for each number: ``#`` is the number, ``$`` the one after it."""
    return separator.join(form.replace("#", str(at)).replace("$", str(at + 1)) for at in range(count))


def _section(kind: str, form: str, count: int) -> str:
    return f"{kind} {{ {many(form, count)} }}"


def graph_of(body: str, declared: str = "", blocks: str = "", shape: str = "8") -> str:
    """A graph with an input x and a result y, which has the same shape and first its value."""
    return (
        f"dynamic {{ x: f32[{shape}]; }} volatile {{ y: f32[{shape}]; }} {declared} {blocks} "
        f"block entry {{ transfer x >> y; {body} return y; }}"
    )


def _square(body: str, declared: str = "") -> str:
    return graph_of(body, declared, shape="8, 8")


# --- long -------------------------------------------------------------------------------------------------------------

_OPS = ("relu", "exp", "tanh", "neg")

LONG: dict[str, Family] = {
    "an op in place": Family(lambda n: graph_of("op relu(y) >> y; " * n)),
    "an op into new temporaries": Family(
        lambda n: graph_of("h0 = op relu(y); " + many("h$ = op relu(h#); ", n) + f"transfer h{n} >> y;")
    ),
    "different ops": Family(lambda n: graph_of("".join(f"op {_OPS[at % len(_OPS)]}(y) >> y; " for at in range(n)))),
    "ops over rows": Family(lambda n: graph_of("op softmax(y) >> y; op relu(y) >> y; " * n)),
    "products": Family(lambda n: _square("op matmul(y, x) >> y; " * n)),
    "dead ops": Family(lambda n: graph_of("h0 = op relu(x); " + many("h$ = op exp(h#); ", n))),
    "barriers": Family(lambda n: graph_of("op relu(y) >> y; barrier; " * n)),
    "deps": Family(lambda n: graph_of("op relu(y) >> y; dep after(relu) before(exp); op exp(y) >> y; " * n)),
    "deps with nodes far away": Family(
        lambda n: graph_of(f"op relu(y) >> y; {'dep after(relu) before(exp); ' * n} op exp(y) >> y;")
    ),
    "transfers": Family(
        lambda n: graph_of(
            f"transfer x >> h0; {many('assign h$: f32[8]; transfer h# >> h$; ', n)} op relu(h{n}) >> y;",
            "volatile { h0: f32[8]; }",
        )
    ),
    "ops that must stay": Family(lambda n: graph_of("op relu(y) with { no_reorder = true } >> y; " * n)),
    "scopes": Family(lambda n: graph_of(many('scope "s#" { op softmax(y) >> y; } ', n))),
}

# --- wide -------------------------------------------------------------------------------------------------------------


def _concat(n: int) -> str:
    parts = many("g# = op add(x, x); ", n)
    return graph_of(f"{parts} op concat({many('g#', n, ', ')}, axis=0) >> z;", f"volatile {{ z: f32[{8 * n}]; }}")


def _results(n: int) -> str:
    declared, body, names = _section("volatile", "y#: f32[8]; ", n), many("op exp(x) >> y#; ", n), many("y#", n, ", ")
    return f"dynamic {{ x: f32[8]; }} {declared} block entry {{ {body} return {names}; }}"


def _sizes(n: int) -> str:
    declared = [
        _section("sizes", "S# <= 16; ", n),
        _section("dynamic", "a#: f32[S#]; ", n),
        _section("volatile", "y#: f32[S#]; ", n),
    ]
    return f"{' '.join(declared)} block entry {{ {many('op relu(a#) >> y#; ', n)} return; }}"


WIDE: dict[str, Family] = {
    "values that all live at once": Family(
        lambda n: graph_of(many("g# = op softmax(y); op tanh(y) >> y; ", n) + many("op add(y, g#) >> y; ", n))
    ),
    "values that live one in another": Family(
        lambda n: graph_of(
            "g0 = op softmax(y); "
            + many("g$ = op softmax(g#); ", n)
            + "".join(f"op mul(y, g{at}) >> y; op softmax(y) >> y; " for at in range(n, 0, -1))
        )
    ),
    "one value, many readers": Family(
        lambda n: graph_of("h = op softmax(x); " + many("g# = op exp(h); op add(g#, y) >> y; ", n))
    ),
    "one value, many readers that are not joined": Family(
        lambda n: graph_of("h = op softmax(x); " + "op mul(h, y) >> y; op softmax(y) >> y; " * n)
    ),
    "the same op again and again": Family(lambda n: graph_of(many("g# = op softmax(x); op add(y, g#) >> y; ", n))),
    "an op with many operands": Family(_concat),
    "many results": Family(_results),
    "many inputs": Family(lambda n: graph_of(many("op add(y, a#) >> y; ", n), _section("dynamic", "a#: f32[8]; ", n))),
    "many persistent variables": Family(
        lambda n: graph_of(many("op add(a#, y) >> a#; ", n), _section("persistent", "a#: f32[8]; ", n))
    ),
    "many unused variables": Family(lambda n: graph_of("", _section("volatile", "a#: f32[8]; ", n))),
    "many sizes": Family(_sizes),
}

# --- tables and slices ------------------------------------------------------------------------------------------------


def _tables(n: int) -> str:
    tables = many("K#(t): f32[8] @table @fixed(t=8); ", n)
    declared = f"sizes {{ T <= 8; }} volatile {{ z: f32[T, 8]; }} persistent {{ n: i32; {tables} }}"
    body = many("cache.write y >> K#[n]; cache.read K#[0..n] >> z; op softmax(y) >> y; ", n)
    return graph_of(body, declared)


TABLES: dict[str, Family] = {
    "many tables": Family(_tables),
    "reads and writes of a table": Family(
        lambda n: graph_of(
            many("cache.write y >> K[#]; cache.read K[#] >> y; op softmax(y) >> y; ", n),
            f"persistent {{ K(t): f32[8] @table @fixed(t={n}); }}",
        )
    ),
    "counters as indices": Family(
        lambda n: graph_of(
            "cache.increment n; cache.read K[n] >> y; " * n,
            "persistent { n: i32; K(t): f32[8] @table @fixed(t=1000000); }",
        )
    ),
    "slices of a tensor": Family(
        lambda n: graph_of(
            "op mul(P[0..4], P[4..8]) >> h; op add(h, h) >> P[0..4]; " * n,
            "persistent { P: f32[8]; } volatile { h: f32[4]; }",
        )
    ),
    "slices without a static length": Family(
        lambda n: graph_of(
            "cache.increment n; op sum_axis(K[0..n], axes=[0]) >> y; " * n,
            "persistent { n: i32; K(t): f32[8] @table @fixed(t=16); }",
        )
    ),
}

# --- control flow -----------------------------------------------------------------------------------------------------


def _nested_with_values(n: int) -> str:
    """Loops in each other, each with a value that is needed inside, and behind what is inside."""
    down = many("loop l# (k# in 0..2) { h$ = op exp(h#); ", n)
    up = "".join(f"op add(h{at}, y) >> y; }} " for at in range(n - 1, -1, -1))
    return graph_of(f"h0 = op relu(x); {down} op add(h{n}, y) >> y; {up}")


def _called_twice(n: int) -> str:
    blocks = many("block b# { branch b$; branch b$; op add(y, x) >> y; return; } ", n)
    return graph_of("branch b0;", "", f"{blocks} block b{n} {{ op exp(y) >> y; return; }}")


def _called_either_way(n: int) -> str:
    blocks = many("block b# { branch c b$ d$; return; } block d# { branch c d$ b$; op exp(y) >> y; return; } ", n)
    ends = f"block b{n} {{ op exp(y) >> y; return; }} block d{n} {{ op tanh(y) >> y; return; }}"
    return graph_of("branch c b0 d0;", "persistent { c: bool; }", f"{blocks} {ends}")


def _called_in_loops(n: int) -> str:
    blocks = many("block b# { loop l (i in 0..2) { op add(y, x) >> y; branch b$; } return; } ", n)
    return graph_of("branch b0;", "", f"{blocks} block b{n} {{ op exp(y) >> y; return; }}")


def _called_with_their_own(n: int) -> str:
    """Each block has a variable of its own, and calls the next one twice."""
    blocks = many("block b# { op exp(v#) >> v#; branch b$; branch b$; op add(y, v#) >> y; return; } ", n)
    return graph_of(
        f"branch b0; {many('op add(y, v#) >> y; ', n)}",
        _section("volatile", "v#: f32[8]; ", n),
        f"{blocks} block b{n} {{ op exp(y) >> y; return; }}",
    )


def _wide(n: int) -> str:
    """A block that touches many variables."""
    return f"block w {{ {many('op exp(v#) >> v#; ', n)} return; }}"


def _call_one_that_is_wide(n: int) -> str:
    """Each block has a variable of its own, and calls the one that has many."""
    blocks = many("block b# { op exp(own#) >> own#; branch w; op exp(own#) >> own#; return; } ", n)
    declared = _section("persistent", "v#: f32[8]; own#: f32[8]; ", n)
    return graph_of(many("branch b#; ", n), declared, f"{_wide(n)} {blocks}")


def _consumers_call_one(n: int) -> str:
    """The block that all consumers call reads many variables."""
    asking = f"block w {{ {many('branch q# e e; ', n)} return; }} block e {{ return; }}"
    blocks, names = many("block c# { await a#; op relu(a#) >> r#; branch w; yield a#; } ", n), many("a#", n, ", ")
    body = f"{many('op exp(x) >> a#; ', n)} yield {names}; await {names}; {many('op add(y, r#) >> y; ', n)}"
    declared = _section("volatile", "a#: f32[8]; r#: f32[8]; ", n) + _section("persistent", "q#: bool; ", n)
    return graph_of(body, declared, f"{asking} {blocks}")


def _consumer_again_and_again(n: int) -> str:
    body = "op exp(y) >> a; yield a; op softmax(y) >> y; await a; op add(y, a) >> y; " * n
    declared = f"volatile {{ a: f32[8]; }} {_section('persistent', 'v#: f32[8]; ', n)}"
    return graph_of(body, declared, f"{_wide(n)} block c {{ await a; op relu(a) >> a; branch w; yield a; }}")


def _others_homes(n: int) -> str:
    """Many variables have the value of another one while other things change."""
    body = many("transfer p >> v#; ", n) + many("loop l# (i in 0..2) { op relu(q) >> q; } ", n)
    declared = f"{_section('volatile', 'v#: f32[8]; ', n)} persistent {{ p: f32[8]; q: f32[8]; }}"
    return graph_of(body + many("op add(y, v#) >> y; ", n), declared)


def _consumers(n: int) -> str:
    blocks, names = many("block c# { await a#; op relu(a#) >> r#; yield a#; } ", n), many("a#", n, ", ")
    body = f"{many('op exp(x) >> a#; ', n)} yield {names}; await {names}; {many('op add(y, r#) >> y; ', n)}"
    return graph_of(body, _section("volatile", "a#: f32[8]; r#: f32[8]; ", n), blocks)


def _yields(n: int) -> str:
    blocks = many("block c# { await a#; op relu(a#) >> a#; yield a#; } ", n)
    body = many("op exp(y) >> a#; yield a#; op softmax(y) >> y; await a#; op add(y, a#) >> y; ", n)
    return graph_of(body, _section("volatile", "a#: f32[8]; ", n), blocks)


def _consumers_of_one(n: int) -> str:
    blocks = many("block c# { await x; op relu(x) >> r#; yield x; } ", n)
    body = f"yield x; await x; {many('op add(y, r#) >> y; ', n)}"
    return graph_of(body, _section("volatile", "r#: f32[8]; ", n), blocks)


_FLAG = "persistent { c: bool; }"

CONTROL: dict[str, Family] = {
    "loops in a row": Family(
        lambda n: graph_of(many("loop l# (i in 0..2) { op add(y, x) >> y; op softmax(y) >> y; } ", n))
    ),
    "loops with values across": Family(
        lambda n: graph_of(
            many("h# = op softmax(y); loop l# (i in 0..2) { op add(y, x) >> y; op softmax(y) >> y; } ", n)
            + many("op add(y, h#) >> y; ", n)
        )
    ),
    "a loop of many ops": Family(
        lambda n: graph_of(f"loop l (i in 0..2) {{ {many('h# = op softmax(y); op add(h#, y) >> y; ', n)} }}")
    ),
    "nested loops": Family(
        lambda n: graph_of(many("loop l# (k# in 0..2) { op add(y, x) >> y; ", n) + "}" * n), most=_DEPTH
    ),
    "nested loops with values": Family(_nested_with_values, most=_DEPTH),
    "nested scopes": Family(lambda n: graph_of(many('scope "s#" { op softmax(y) >> y; ', n) + "}" * n), most=_DEPTH),
    "branches to two blocks": Family(
        lambda n: graph_of(
            "branch c b d; op softmax(y) >> y; " * n,
            _FLAG,
            "block b { op relu(y) >> y; return; } block d { op exp(y) >> y; return; }",
        )
    ),
    "branches to many blocks": Family(
        lambda n: graph_of(
            many("branch c b# d; ", n), _FLAG, many("block b# { op relu(y) >> y; return; } ", n) + "block d { return; }"
        )
    ),
    "blocks that nothing runs": Family(lambda n: graph_of("", "", many("block b# { op relu(y) >> y; return; } ", n))),
    "blocks called twice": Family(_called_twice),
    "blocks called twice, with variables of their own": Family(_called_with_their_own),
    "blocks that call one that is wide": Family(_call_one_that_is_wide),
    "loops that call one that is wide": Family(
        lambda n: graph_of(
            many("loop l# (i in 0..2) { branch w; } ", n), _section("volatile", "v#: f32[8]; ", n), _wide(n)
        )
    ),
    "blocks called either way": Family(_called_either_way),
    "blocks called in loops": Family(_called_in_loops),
    "many consumers": Family(_consumers),
    "many yields": Family(_yields),
    "many consumers of one value": Family(_consumers_of_one),
    "many consumers that call one block": Family(_consumers_call_one),
    "a consumer that runs again and again": Family(_consumer_again_and_again),
    "values in the homes of others": Family(_others_homes),
}

# --- expressions, names, models ---------------------------------------------------------------------------------------


def _split(n: int) -> str:
    declared = f"volatile {{ z: f32[{n}]; {many('z#: f32[1]; ', n)} }}"
    return graph_of(f"op split(z, axis=0, sizes=[{many('1', n, ', ')}]) >> {many('z#', n, ', ')};", declared)


def _inferred(op: str, n: int) -> str:
    """A chain of ops that give temporaries their types, with a dynamic size."""
    return (
        f"sizes {{ T <= 64; }} dynamic {{ x: f32[T]; }} block entry {{ h0 = op relu(x); {many(op, n)}"
        f" y = op sum_axis(h{n}, axes=[0]); return y; }}"
    )


def sum_of_sizes(n: int) -> str:
    """A graph with a tensor as long as many dynamic sizes together."""
    extent, sizes = "+".join(f"S{at}" for at in range(n)), many("S# <= 2; ", n)
    inputs = f"dynamic {{ a: f32[{extent}]; {many('b#: f32[S#]; ', n)} }}"
    return f"sizes {{ {sizes} }} {inputs} volatile {{ y: f32[{extent}]; }} block entry {{ op relu(a) >> y; return y; }}"


def joined_sizes(n: int) -> str:
    """A chain of ops, each of which has one dynamic size more than the one before."""
    declared = f"{_section('sizes', 'S# <= 16; ', n + 1)} {_section('dynamic', 'a#: f32[S#]; ', n + 1)}"
    ops = "".join(f"h{at + 1} = op concat(h{at}, a{at + 1}, axis=0); " for at in range(n))
    return f"{declared} block entry {{ h0 = op relu(a0); {ops} return h{n}; }}"


def _sizes_of_sizes(n: int) -> str:
    sizes = f"sizes {{ S0 := 1; {many('S$ := S# + 1; ', n)} }}"
    return f"{sizes} {graph_of('op relu(x) >> y;', shape=f'S{n}')}"


_TABLE = "persistent { K(t): f32[8] @table @fixed(t=8); }"
_PREFIX = 'constant { W(l): f32[8, 8] @pattern("W.{l}"); }'


def _names(n: int) -> list[str]:
    return [f"W.{at}" for at in range(n)]


TEXT: dict[str, Family] = {
    "a long dimension": Family(lambda n: graph_of("op relu(x) >> y;", shape="+".join("1" * n)), most=200),
    "a nested dimension": Family(lambda n: graph_of("op relu(x) >> y;", shape=f"{'(' * n}8{')' * n}"), most=_DEPTH),
    "a long index": Family(lambda n: graph_of(f"cache.read K[{'+'.join('0' * n)}] >> y;", _TABLE), most=200),
    "a long name": Family(lambda n: graph_of(f"{'n' * 50 * n} = op relu(x); op exp({'n' * 50 * n}) >> y;")),
    "a long list": Family(_split),
    "comments": Family(lambda n: graph_of("// nothing\n/* nothing */ barrier;\n" * n)),
    "sizes of sizes": Family(_sizes_of_sizes, most=190),
    "an extent that doubles": Family(lambda n: _inferred("h$ = op concat(h#, h#, axis=0); ", n), most=20),
    "entries of a prefix table": Family(
        lambda n: _square(f"loop r (l in 0..{n}) {{ op matmul(y, W[l]) >> y; }}", _PREFIX), _names
    ),
    "accesses of a prefix table": Family(lambda n: _square(many("op matmul(y, W[#]) >> y; ", n), _PREFIX), _names),
    "accesses of a prefix table with gaps": Family(
        lambda n: _square(many("op matmul(y, W[k + #]) >> y; ", n), f"{_PREFIX} persistent {{ k: i32; }}"),
        lambda n: [f"W.{2 * at}" for at in range(n)],
    ),
    "written entries of a prefix table with gaps": Family(
        lambda n: _square(
            many("op add(y, W[k + #]) >> W[k + #]; op matmul(y, W[k + #]) >> y; ", n),
            f"{_PREFIX.replace('constant', 'volatile')} persistent {{ k: i32; }}",
        ),
        lambda n: [f"W.{2 * at}" for at in range(n)],
    ),
    "prefix tables": Family(
        lambda n: _square(
            many("op matmul(y, W#[0]) >> y; ", n),
            _section("constant", 'W#(l): f32[8, 8] @pattern("W#.{l}"); ', n),
        ),
        lambda n: [f"W{at}.0" for at in range(n)],
    ),
    "written entries of a prefix table": Family(
        lambda n: _square(
            many("op add(y, W[#]) >> W[#]; op matmul(y, W[#]) >> y; ", n), _PREFIX.replace("constant", "volatile")
        ),
        _names,
    ),
    "tensors of the model": Family(lambda n: _square(many('op matmul(y, model["W.#"]) >> y; ', n)), _names),
    "constants": Family(
        lambda n: _square(many("op matmul(y, W#) >> y; ", n), _section("constant", "W#: f32[8, 8]; ", n)),
        lambda n: [f"W{at}" for at in range(n)],
    ),
    "constants that are folded": Family(
        lambda n: _square(
            f"h0 = op neg(W); {many('h$ = op neg(h#); ', n)} op add(y, h{n}) >> y;", "constant { W: f32[8, 8]; }"
        ),
        lambda _: ["W"],
    ),
}

FAMILIES = LONG | WIDE | TABLES | CONTROL | TEXT
"""What is right, and goes through everything."""

WRONG: dict[str, Family] = {
    "unknown ops": Family(lambda n: graph_of("op nag(x) >> y; " * n)),
    "unknown names": Family(lambda n: graph_of(many("op relu(a#) >> y; ", n))),
    "wrong statements": Family(lambda n: graph_of("wrong statement; " * n)),
    "wrong types": Family(lambda n: graph_of("op add(x, z) >> y; " * n, "volatile { z: f32[3]; }")),
    "names declared again": Family(lambda n: graph_of("", f"volatile {{ {'z: f32; ' * n} }}")),
    "unknown sizes": Family(lambda n: graph_of("", _section("volatile", "z#: f32[T#]; ", n))),
    "deps without nodes": Family(lambda n: graph_of(many("dep after(f#) before(g#); ", n))),
    "unknown blocks": Family(lambda n: graph_of(many("branch b#; ", n))),
    "a cycle of blocks": Family(
        lambda n: graph_of(
            "branch b0;", "", many("block b# { branch b$; return; } ", n) + f"block b{n} {{ branch b0; return; }}"
        )
    ),
    "missing terminators": Family(lambda n: graph_of("", "", many("block b# { barrier; } ", n))),
    "variables yielded again": Family(lambda n: graph_of("yield x; " * n)),
    "variables touched before they are back": Family(
        lambda n: graph_of(f"yield x; {'op relu(x) >> y; ' * n}", "", "block c { await x; yield x; }")
    ),
    "variables touched through a block before they are back": Family(
        lambda n: graph_of(
            f"{many('op exp(x) >> v#; ', n)} yield {many('v#', n, ', ')}; {'branch w; ' * n}"
            f" await {many('v#', n, ', ')};",
            _section("volatile", "v#: f32[8]; ", n),
            f"{_wide(n)} block c {{ await {many('v#', n, ', ')}; yield {many('v#', n, ', ')}; }}",
        )
    ),
    "consumers that write the same": Family(
        lambda n: graph_of(
            f"{many('op exp(x) >> a#; ', n)} yield {many('a#', n, ', ')}; await {many('a#', n, ', ')};",
            f"{_section('volatile', 'a#: f32[8]; v#: f32[8]; ', n)}",
            f"{_wide(n)} {many('block c# { await a#; branch w; yield a#; } ', n)}",
        )
    ),
    "temporaries used by a block before they are assigned": Family(
        lambda n: graph_of(many("branch w; assign v#: f32[8]; ", n), "", _wide(n)),
    ),
    "missing entries of a prefix table": Family(lambda n: _square(many("op matmul(y, W[#]) >> y; ", n), _PREFIX)),
}
"""What is refused."""
