"""Random valid graphs in canonical form: every declaration, node, operand and value that the language can spell.

``random_graph`` takes any ``random.Random``, so that the fuzzers can use it with a seed; ``graphs`` is the Hypothesis
strategy. What they give passes ``validate`` without a word, and printing and parsing it must give it back.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

from openinfer.dtypes import DTYPES, DType
from openinfer.ir import (
    Access,
    Assign,
    Attribute,
    Await,
    Barrier,
    Block,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Dep,
    Graph,
    Index,
    Input,
    Literal,
    Loop,
    MemoryKind,
    ModelRef,
    Node,
    NodeKind,
    Op,
    Operand,
    Return,
    Scope,
    Single,
    SizeDecl,
    Slice,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Operator, Ref, negate
from openinfer.ir.rules import dimension_problem
from openinfer.ir.values import (
    AttrValue,
    BoolValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    FloatValue,
    InitValue,
    IntValue,
    StrValue,
    VarValue,
)
from openinfer.ir.words import RESERVED

T = TypeVar("T")
SIZES = ("B", "D", "H", "T", "num_layers", "N_2", "sizes", "pattern")
CONTEXTUAL = (
    *("cache", "step", "start", "state", "graph", "let", "after", "before", "buffer", "index", "value", "inputs"),
    *("outputs", "dynamic", "volatile", "constant", "constants", "persistent", "read", "write", "entry", "_"),
)
LOOP_INDICES = ("l", "i", "j", "k", "layer", "step")
OPS = ("add", "matmul", "relu", "sdpa", "cache", "topk", "buffer")
STRINGS = (
    "",
    "gpu",
    'say "hi"',
    "back\\slash",
    "tab\tnewline\nreturn\r",
    "é ü 漢字 🙂",
    "\x00\x07\x1b[31m\x7f",
    "\u2028\u202e\ufeff",
    "// no comment /* none */",
    "}; block entry {",
    "'single'",
    "a.{b}.c",
    "\\u0041",
    " ",
)
INTEGERS = (0, 1, 2, 3, 7, -1, -8, 255, 2**31, 2**63 - 1, -(2**63), 2**63, 2**64 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, 1e300, -1e-300, 5e-324, 1.7976931348623157e308, 1e16, 123456789.125)
SPECIAL = (float("inf"), float("-inf"), float("nan"))
OPERATORS: tuple[Operator, ...] = ("+", "-", "*", "/", "%")


class Choices:
    """What a random source chooses of names, expressions, values and declarations."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.taken: set[str] = set()
        self.vars: list[VarDecl] = []

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def some(self, options: Sequence[T], most: int, least: int = 0) -> list[T]:
        """Distinct elements in their own order."""
        count = min(len(options), self.rng.randint(least, most))
        chosen = set(self.rng.sample(range(len(options)), count))
        return [option for position, option in enumerate(options) if position in chosen]

    def fresh(self, prefix: str) -> str:
        """A name no variable has."""
        name = self.rng.choice(CONTEXTUAL) if self.chance(0.3) else f"{prefix}{self.rng.randrange(100)}"
        while name in self.taken or name in SIZES:
            name += "_"
        self.taken.add(name)
        return name

    def word(self) -> str:
        """Any name, declared or not."""
        return self.rng.choice((*CONTEXTUAL, *SIZES, "a", "b", "axis", "eps", "acc", "X9", "__x"))

    def string(self) -> str:
        if self.chance(0.7):
            return self.rng.choice(STRINGS)
        ranges = ((0x20, 0x7F), (0, 0x100), (0x370, 0xD800), (0xE000, 0x110000))
        return "".join(chr(self.rng.randrange(*self.rng.choice(ranges))) for _ in range(self.rng.randrange(6)))

    # --- expressions and values -----------------------------------------------------------------------------------

    def expr(self, names: Sequence[str], depth: int = 3) -> Expr:
        choice = self.rng.randrange(10) if depth else self.rng.randrange(6)
        if choice < 3 or not names:
            return Num(self.rng.choice(INTEGERS))
        if choice < 6:
            return Ref(self.rng.choice(names))
        if choice == 6:
            inner = self.expr(names, depth - 1)
            # An integer literal is one of 64 bits, with or without a sign.
            return inner if isinstance(inner, Num) and inner.value > 2**63 else negate(inner)
        return BinaryExpr(self.rng.choice(OPERATORS), self.expr(names, depth - 1), self.expr(names, depth - 1))

    def compound(self, names: Sequence[str]) -> Expr:
        """An expression that is neither a number nor a name."""
        found = self.expr(names)
        return found if isinstance(found, BinaryExpr | Neg) else BinaryExpr("+", found, Num(1))

    def number(self) -> float:
        return self.rng.choice((*FLOATS, *SPECIAL, self.rng.gauss(0, 1e3), self.rng.random() * 10.0**-20))

    def value(self) -> AttrValue:
        makers: tuple[Callable[[], AttrValue], ...] = (
            lambda: FloatValue(self.number()),
            lambda: IntValue(self.rng.choice(INTEGERS)),
            lambda: BoolValue(self.chance(0.5)),
            lambda: StrValue(self.string()),
            lambda: VarValue(self.rng.choice(self.parameter_names())),
            lambda: ExprValue(self.compound(SIZES)),
            lambda: DTypeValue(self.dtype()),
            lambda: FloatList(tuple(FloatValue(self.number()) for _ in range(self.rng.randint(1, 3)))),
            lambda: ExprList(tuple(self.expr(SIZES) for _ in range(self.rng.randrange(4)))),
            lambda: ExprList(tuple(Num(self.rng.choice(INTEGERS)) for _ in range(self.rng.randrange(4)))),
            lambda: DTypeList(tuple(self.dtype() for _ in range(self.rng.randint(1, 3)))),
        )
        return self.rng.choice(makers)()

    def scalar(self) -> InitValue:
        makers: tuple[Callable[[], InitValue], ...] = (
            lambda: FloatValue(self.number()),
            lambda: IntValue(self.rng.choice(INTEGERS)),
            lambda: BoolValue(self.chance(0.5)),
        )
        return self.rng.choice(makers)()

    def parameter_names(self) -> list[str]:
        """Names that a bare argument gives by value: scalar constants, and what only a model can know."""
        scalars = [var.name for var in self.vars if var.kind is MemoryKind.CONSTANT and not var.dims]
        return [*scalars, *(name for name in ("alpha", "num_heads", *SIZES) if name not in self.taken)]

    def dtype(self) -> DType:
        return self.rng.choice(list(DTYPES.values()))

    def constraints(self, probability: float) -> dict[str, AttrValue]:
        keys = ("fuse", "placement", "group", "no_reorder", "index", "anything")
        return {key: self.value() for key in self.some(keys, 3, 1)} if self.chance(probability) else {}

    # --- declarations ---------------------------------------------------------------------------------------------

    def size(self, name: str) -> SizeDecl:
        return SizeDecl(name, self.rng.choice((":=", "<=")), self.dimension(("M", "N")))

    def dimension(self, names: Sequence[str]) -> Expr:
        """An expression that can be a size."""
        while dimension_problem(found := self.expr(names)) is not None:
            pass
        return found

    def dims(self) -> tuple[Expr, ...]:
        return tuple(self.dimension(SIZES) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))))

    def init(self, dtype: DType) -> InitValue | None:
        if self.chance(0.4):
            return None
        if dtype.kind == "bool":
            return BoolValue(self.chance(0.5))
        if dtype.kind == "float":
            inside = [number for number in FLOATS if dtype.minimum <= number <= dtype.maximum]
            return FloatValue(self.rng.choice((*inside, *SPECIAL)))
        low, high = int(dtype.minimum), int(dtype.maximum)
        return IntValue(self.rng.choice(dtype.values or (low, high, self.rng.randint(low, high))))

    def attributes(self) -> tuple[Attribute, ...]:
        def arguments() -> tuple[tuple[str | None, AttrValue], ...]:
            by_position = [(None, self.value()) for _ in range(self.rng.randrange(3))]
            by_name = [(name, self.value()) for name in self.some(("a", "index", "pattern", "x"), 2)]
            return (*by_position, *by_name)

        names = self.some(("layout", "graph", "note", "pin", "state"), 2, 1) if self.chance(0.2) else []
        return tuple(Attribute(name, arguments()) for name in names)

    def variable(self, kind: MemoryKind) -> VarDecl:
        dtype, dims = self.dtype(), self.dims()
        more: dict[str, Any] = {"attrs": self.attributes()}
        if kind is not MemoryKind.DYNAMIC:
            more["init"] = self.init(dtype)
            more["ref_name"] = self.string() if self.chance(0.3) else None
        if kind in (MemoryKind.VOLATILE, MemoryKind.CONSTANT) and self.chance(0.4):
            indices = tuple(self.some(("layer", "head", "l", "step"), 3, 1))
            placeholders = self.rng.sample(indices, len(indices)) + self.rng.choices(indices, k=self.rng.randrange(2))
            more["pattern"] = "".join(f'W"\\é.{{{index}}}' for index in placeholders)
            more["table_indices"] = indices
        if kind is MemoryKind.PERSISTENT and self.chance(0.6):
            more |= self.cache_table(len(dims))
        return VarDecl(self.fresh(kind.value[:3]), kind, dtype, dims, **more)

    def cache_table(self, rank: int) -> dict[str, Any]:
        indices = tuple(self.some(("l", "t", "i", "j", "cache"), 3, 1))
        auto_dim = tuple(self.some(indices, min(2, rank))) if self.chance(0.5) else ()
        plain = not auto_dim or len(auto_dim) < len(indices)
        fixed = self.some(indices, 2, 1) if self.chance(0.5) else []
        return {
            "table_indices": indices,
            "auto_dim": auto_dim,
            "table": plain or self.chance(0.5),
            "fixed": tuple((index, self.dimension(SIZES)) for index in fixed),
        }


class Maker:
    """Makes one graph from the choices of a random source."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.choose = Choices(rng)
        self.vars = self.choose.vars
        self.temporaries = [self.choose.fresh("tmp") for _ in range(rng.randrange(4))]
        self.unassigned = list(self.temporaries)
        self.shapes = {name: self.choose.dims() for name in self.temporaries}

    # --- operands -------------------------------------------------------------------------------------------------

    def index_names(self, loops: tuple[str, ...]) -> list[str]:
        counters = [var.name for var in self.vars if _is_counter(var)]
        return [*loops, *counters, *(name for name in SIZES if name not in self.choose.taken)]

    def single(self, loops: tuple[str, ...]) -> Single:
        if self.choose.chance(0.4):
            return Single(Num(self.rng.choice((0, 1, 5, 2**64 - 1))))
        names = self.index_names(loops)
        found = Ref(self.rng.choice(names))
        return Single(found if self.choose.chance(0.5) else BinaryExpr("-", found, self.choose.expr(names, 2)))

    def index(self, loops: tuple[str, ...]) -> Index:
        if self.choose.chance(0.5):
            return self.single(loops)
        ends = [self.choose.expr(self.index_names(loops), 2) if self.choose.chance(0.6) else None for _ in range(2)]
        return Slice(*ends)

    def access(self, var: VarDecl, loops: tuple[str, ...]) -> Access:
        """A variable, chosen from where it is a table."""
        if var.pattern is not None:
            return Access(var.name, tuple(self.single(loops) for _ in var.table_indices), bracketed=True)
        if not var.is_indexed and self.choose.chance(0.6):
            return Access(var.name)
        count = len(var.table_indices) if var.is_indexed else len(var.dims)
        if self.choose.chance(0.2):
            return Access(var.name, (), bracketed=True)
        return Access(var.name, tuple(self.index(loops) for _ in range(count)), bracketed=True)

    def prefix(self, var: VarDecl, loops: tuple[str, ...]) -> Access:
        """What can be reset: all of a variable, or what a prefix of its indices chooses."""
        if not var.is_indexed or self.choose.chance(0.3):
            return Access(var.name)
        count = self.rng.randrange(len(var.table_indices) + 1)
        return Access(var.name, tuple(self.index(loops) for _ in range(count)), bracketed=True)

    def readable(self, loops: tuple[str, ...]) -> Operand:
        if self.choose.chance(0.15):
            return Literal(self.choose.scalar())
        indices = [name for name in loops if name not in self.choose.taken]
        if indices and self.choose.chance(0.2):
            return Access(self.rng.choice(indices))
        if self.choose.chance(0.15):
            if not self.choose.chance(0.5):
                return ModelRef(self.choose.string())
            text = self.choose.string().replace("{", "").replace("}", "")
            return ModelRef(text + "".join(f".{{{loop}}}" for loop in self.choose.some(loops, 2)), formatted=True)
        return self.access_to(self.vars, loops)

    def writable(self, loops: tuple[str, ...]) -> Access:
        return self.access_to([var for var in self.vars if var.kind is not MemoryKind.CONSTANT], loops)

    def access_to(self, variables: Sequence[VarDecl], loops: tuple[str, ...]) -> Access:
        if self.temporaries and self.choose.chance(0.4):
            name = self.rng.choice(self.temporaries)
            indices = tuple(self.index(loops) for _ in range(len(self.shapes.get(name, ()))))
            return Access(name, indices, bracketed=True) if indices and self.choose.chance(0.3) else Access(name)
        return self.access(self.rng.choice(variables), loops)

    def persistent(self) -> VarDecl:
        return self.rng.choice([var for var in self.vars if var.kind is MemoryKind.PERSISTENT])

    def names(self) -> list[str]:
        """Everything that return, yield, await and branch can name."""
        return [*self.temporaries, *(var.name for var in self.vars)]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def op(self, loops: tuple[str, ...], outputs: tuple[Access, ...] | None = None) -> Op:
        labels = self.choose.some(("a", "b", "q", "value", "index", "model_", "eps", "axis"), 4)
        inputs = [Input(self.readable(loops)) for _ in range(self.rng.randrange(3))]
        attrs: list[tuple[str, AttrValue]] = []
        for label in labels:
            operand = self.readable(loops)
            if self.choose.chance(0.4) and not self.is_parameter(operand):
                inputs.append(Input(operand, label))
            else:
                attrs.append((label, self.choose.value()))
        written = outputs or tuple(self.writable(loops) for _ in range(self.rng.choice((1, 1, 1, 2, 3))))
        return Op(self.rng.choice(OPS), tuple(inputs), tuple(attrs), tuple(dict.fromkeys(written)))

    def is_parameter(self, operand: Operand) -> bool:
        if isinstance(operand, Literal):
            return True
        if not isinstance(operand, Access) or operand.bracketed:
            return False
        return operand.base in self.choose.parameter_names() or operand.base not in self.choose.taken

    def simple(self, loops: tuple[str, ...], targets: Sequence[str]) -> NodeKind:
        """A node without a body."""
        counters = [var.name for var in self.vars if _is_counter(var)]
        makers: list[Callable[[], NodeKind]] = [
            lambda: Transfer(self.readable(loops), self.writable(loops)),
            Barrier,
            lambda: CacheRead(self.access(self.persistent(), loops), self.writable(loops)),
            lambda: CacheWrite(self.readable(loops), self.access(self.persistent(), loops)),
            lambda: CacheReset(self.prefix(self.persistent(), loops)),
            lambda: CacheIncrement(self.rng.choice(counters), self.amount(loops)),
            lambda: CacheDecrement(self.rng.choice(counters), self.amount(loops)),
        ]
        if targets:
            makers += [
                lambda: Branch(None, self.rng.choice(targets)),
                lambda: Branch(self.rng.choice(self.names()), self.rng.choice(targets), self.rng.choice(targets)),
            ]
        return self.rng.choice(makers)()

    def amount(self, loops: tuple[str, ...]) -> Expr:
        if self.choose.chance(0.5):
            return Num(self.rng.choice((0, 1, 1, 5, -3, 2**64 - 1)))
        return self.choose.expr(self.index_names(loops))

    def node(self, kind: NodeKind) -> Node:
        return Node(kind, self.choose.constraints(0.2) if isinstance(kind, Op) else {})

    def body(self, targets: Sequence[str], loops: tuple[str, ...], depth: int, *, entry: bool) -> list[Node]:
        found: list[Node] = []
        for _ in range(self.rng.choice((0, 1, 1, 2, 2, 3))):
            choice = self.rng.randrange(10)
            if choice < 2 and depth:
                inner = self.rng.choice([index for index in LOOP_INDICES if index not in loops])
                nodes = self.body(targets, (*loops, inner), depth - 1, entry=entry)
                ends = [self.choose.expr(self.index_names(loops)) for _ in range(2)]
                found.append(Node(Loop(self.choose.word(), inner, ends[0], ends[1], tuple(nodes))))
            elif choice == 2 and depth:
                nodes = self.body(targets, loops, depth - 1, entry=entry)
                found.append(Node(Scope(self.choose.string(), tuple(nodes))))
            elif choice == 3:
                after, before = self.op(loops), self.op(loops)
                found += [self.node(after), Node(Dep(after.op, before.op)), self.node(before)]
            elif choice == 4 and entry and self.unassigned:
                found.append(self.assign())
            elif choice == 5 and entry:
                found += self.classic(loops)
            elif choice < 8:
                found.append(self.node(self.op(loops)))
            else:
                found.append(Node(self.simple(loops, targets)))
        return found

    def assign(self) -> Node:
        name = self.unassigned.pop()
        return Node(Assign(name, self.choose.dtype(), self.shapes[name]))

    def classic(self, loops: tuple[str, ...]) -> list[Node]:
        """``t = op ...``, whose type only a model can tell."""
        names = [self.choose.fresh("untyped") for _ in range(self.rng.choice((1, 1, 2, 3)))]
        known = [name for name in self.temporaries if name in self.shapes and name not in self.unassigned]
        outputs = [*names, *known[: self.rng.randrange(2)]]
        op = self.op(loops, tuple(map(Access, self.rng.sample(outputs, len(outputs)))))
        self.temporaries += names
        untyped = [output.base for output in op.outputs if output.base in names]
        return [*(Node(Assign(name, None, None)) for name in untyped), self.node(op)]

    # --- blocks ---------------------------------------------------------------------------------------------------

    def helper(self, name: str, targets: Sequence[str]) -> Block:
        nodes = [*self.body(targets, (), 2, entry=False), Node(Return(tuple(self.choose.some(self.names(), 1))))]
        return Block(name, tuple(nodes), self.choose.constraints(0.2))

    def consumer(self, name: str, awaited: Sequence[str], targets: Sequence[str]) -> Block:
        end = Yield(tuple(awaited))
        nodes = [Node(Await(tuple(awaited))), *self.body(targets, (), 1, entry=False), Node(end)]
        return Block(name, tuple(nodes), self.choose.constraints(0.1))

    def entry(self, awaited: Sequence[str], targets: Sequence[str]) -> Block:
        nodes = self.body(targets, (), 3, entry=True)
        if awaited:
            nodes.append(Node(Yield(tuple(awaited))))
            nodes += self.body(targets, (), 1, entry=True)
            nodes.append(Node(Await(tuple(self.choose.some(awaited, 2, 1)))))
        while self.unassigned:
            nodes.insert(0, self.assign())
        nodes.append(Node(Return(tuple(self.choose.some(self.names(), 2)))))
        return Block("entry", tuple(nodes), self.choose.constraints(0.1))

    def graph(self) -> Graph:
        sizes = [self.choose.size(name) for name in self.choose.some(SIZES, 3)]
        self.vars.append(VarDecl(self.choose.fresh("n"), MemoryKind.PERSISTENT, DTYPES["i32"]))
        for kind in MemoryKind:
            for _ in range(self.rng.choice((0, 1, 2))):
                self.vars.append(self.choose.variable(kind))
        self.vars.append(VarDecl(self.choose.fresh("x"), MemoryKind.DYNAMIC, DTYPES["f32"], (Ref("B"),)))
        names = ["body", "ok", "state", "bad"][: self.rng.randrange(4)]
        helpers = [self.helper(name, names[position + 1 :]) for position, name in enumerate(names)]
        consumers: list[Block] = []
        awaited: list[str] = []
        for name in ("worker", "graph")[: self.rng.choice((0, 0, 1, 2))]:
            wanted = self.choose.some(self.names(), 2, 1)
            consumers.append(self.consumer(name, wanted, names))
            awaited += wanted
        blocks = [self.entry(list(dict.fromkeys(awaited)), names), *helpers, *consumers]
        if self.choose.chance(0.3):
            self.rng.shuffle(blocks)
        order = list(MemoryKind)
        return Graph.of(sizes, sorted(self.vars, key=lambda var: order.index(var.kind)), blocks)


def _is_counter(var: VarDecl) -> bool:
    scalar = not var.dims and not var.is_indexed
    return scalar and var.kind is MemoryKind.PERSISTENT and var.dtype.kind in ("int", "uint")


def random_graph(rng: Random) -> Graph:
    """A valid graph in canonical form."""
    return Maker(rng).graph()


def graphs() -> st.SearchStrategy[Graph]:
    """Valid graphs in canonical form."""
    return st.randoms(use_true_random=False).map(random_graph)


assert not RESERVED & {*SIZES, *CONTEXTUAL, *LOOP_INDICES, *OPS}
