"""Programs with calls: statements of a random program become blocks with parameters, which are then called again.

A program of its own chance: those of ``program_of`` stay what they are.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.differential.programs.interpret import Machine
from tests.differential.programs.numbers import FLOATS, INTEGERS, FailedError
from tests.differential.programs.structures import program_of
from tests.differential.programs.tables import TooMuchError
from tests.differential.programs.tree import (
    Access,
    Assign,
    Await,
    Branch,
    Call,
    Count,
    Decl,
    Expr,
    Index,
    Kind,
    Literal,
    Loop,
    Op,
    Operand,
    Param,
    Program,
    Read,
    Reset,
    Scope,
    Slice,
    Statement,
    Transfer,
    Write,
    Yield,
    expr_names,
    index_names,
    walk,
)

Body = tuple[Statement, ...]


@dataclass
class Uses:
    """The names that statements touch themselves, and through the blocks that they branch to."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    """Names that stand where only a persistent variable may."""
    through: set[str] = field(default_factory=set)


def uses_of(program: Program, body: Sequence[Statement]) -> Uses:
    """What statements touch."""
    found = Uses()
    for statement in walk(body):
        match statement:
            case Branch(yes, condition, no):
                found.reads |= {condition} if condition is not None else set()
                for block in (yes, no):
                    if block is not None:
                        inner = uses_of(program, program.blocks[block])
                        found.through |= inner.reads | inner.writes | inner.kept | inner.through
            case Call(block):
                _touch(found, statement)
                inner = uses_of(program, program.blocks[block])
                hidden = {one.name for one in program.params[block]} | set(_declared(program.blocks[block]))
                found.through |= (inner.reads | inner.writes | inner.kept | inner.through) - hidden
            case _:
                _touch(found, statement)
    return found


def _touch(found: Uses, statement: Statement) -> None:
    read, written = list[Operand](), list[Access]()
    match statement:
        case Op(_, inputs, outputs):
            read, written = list(inputs), list(outputs)
        case Transfer(source, target):
            read, written = [source], [target]
        case Read(source, name):
            found.kept.add(source.base)
            read, written = [source], [Access(name)]
        case Write(name, target):
            found.kept.add(target.base)
            read, written = [Access(name)], [target]
        case Count(name, amount, _):
            found.kept.add(name)
            found.reads |= set(expr_names(amount))
        case Reset(target):
            found.kept.add(target.base)
            found.reads |= set(index_names(target))
        case Loop(_, _, start, end, _):
            found.reads |= {*expr_names(start), *expr_names(end)}
        case Assign(name, _):
            found.writes.add(name)
        case Call(_, args, outputs):
            read = [one for one in args if isinstance(one, Access | Literal)]
            found.reads |= {name for one in args if not isinstance(one, Access | Literal) for name in expr_names(one)}
            written = list(outputs)
    for one in (*read, *written):
        found.reads |= {one.base} if isinstance(one, Access) and one in read else set()
        found.reads |= set(index_names(one))
    found.writes |= {one.base for one in written}


def _declared(body: Sequence[Statement]) -> Iterator[str]:
    for statement in walk(body):
        if isinstance(statement, Assign):
            yield statement.name
        elif isinstance(statement, Op) and statement.inferred:
            yield from (output.base for output in statement.outputs)


# --- other names ------------------------------------------------------------------------------------------------------


def renamed(statement: Statement, names: dict[str, str], entries: dict[Access, str]) -> Statement:
    """A statement with other names in it, and parameters in the place of entries of prefix tables."""

    def expr(one: Expr) -> Expr:
        if isinstance(one, tuple):
            return (one[0], expr(one[1]), expr(one[2]))
        return names.get(one, one) if isinstance(one, str) else one

    def index(one: Index) -> Index:
        if not isinstance(one, Slice):
            return expr(one)
        return Slice(*(None if end is None else expr(end) for end in (one.start, one.end)))

    def access(one: Access) -> Access:
        indices = None if one.indices is None else tuple(map(index, one.indices))
        return Access(names.get(one.base, one.base), indices)

    def operand(one: Operand) -> Operand:
        if isinstance(one, Access) and one in entries:
            return Access(entries[one])
        return access(one) if isinstance(one, Access) else one

    match statement:
        case Op(name, inputs, outputs, params, inferred):
            return Op(name, tuple(map(operand, inputs)), tuple(map(access, outputs)), params, inferred)
        case Transfer(source, target):
            return Transfer(access(source), access(target))
        case Read(source, name):
            return Read(access(source), names.get(name, name))
        case Write(name, target):
            return Write(names.get(name, name), access(target))
        case Count(name, amount, down):
            return Count(name, None if amount is None else expr(amount), down)
        case Reset(target):
            return Reset(access(target))
        case Loop(label, own, start, end, body):
            return Loop(label, own, expr(start), expr(end), tuple(renamed(one, names, entries) for one in body))
        case Scope(name, body):
            return Scope(name, tuple(renamed(one, names, entries) for one in body))
        case Branch(yes, condition, no):
            return Branch(yes, None if condition is None else names.get(condition, condition), no)
        case Call(block, args, outputs):
            given = tuple(operand(one) if isinstance(one, Access | Literal) else expr(one) for one in args)
            return Call(block, given, tuple(map(access, outputs)))
        case _:
            return statement


# --- statements as blocks ---------------------------------------------------------------------------------------------


class Outlining:
    """A program whose statements become blocks."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program = program
        self.rng = random.Random(f"{seed}/calls")
        self.decls = {decl.name: decl for decl in program.decls}
        self.kinds = Machine(program).kinds
        bound = {size for decl in program.decls if decl.section == "dynamic" for size in _sizes(decl.kind)}
        self.free = set(program.sizes) - bound
        self.count = 0

    def run(self) -> Program:
        """The program with calls in it."""
        for name in [*self.program.blocks]:
            body = self._body(name, self.program.blocks[name], ())
            self.program = self.program.with_blocks({**self.program.blocks, name: body})
        return self.program

    def again(self) -> Program:
        """The same, with its blocks called at the end of entry on other arguments."""
        more = [call for _ in range(self.rng.randint(1, 3)) if (call := self._another()) is not None]
        entry = (*self.program.blocks["entry"], *more)
        return self.program.with_blocks({**self.program.blocks, "entry": entry})

    def _body(self, block: str, body: Body, loops: tuple[Loop, ...]) -> Body:
        made = tuple(self._inside(block, statement, loops) for statement in body)
        for _ in range(self.rng.choice((0, 1, 1, 2)) if made else 0):
            first = self.rng.randrange(len(made))
            last = min(len(made), first + self.rng.randint(1, 4))
            calls = self._outlined(block, made[first:last], loops)
            if calls is not None:
                made = (*made[:first], *calls, *made[last:])
        return made

    def _inside(self, block: str, statement: Statement, loops: tuple[Loop, ...]) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=self._body(block, statement.body, (*loops, statement)))
        if isinstance(statement, Scope):
            return replace(statement, body=self._body(block, statement.body, loops))
        return statement

    def _outlined(self, block: str, part: Body, loops: tuple[Loop, ...]) -> Body | None:
        """Statements as a call of a block that is made of them, with what must be declared before it."""
        if any(isinstance(one, Yield | Await) for one in walk(part)):
            return None
        uses = uses_of(self.program, part)
        assigned = {one: self.kinds[one] for one in _declared(part)}
        escaping = [name for name in assigned if self._is_used_elsewhere(name, block, part)]
        outer = [one for one in part if isinstance(one, Assign | Op)]
        if any(name not in set(_declared(outer)) or self._has_free_size(assigned[name]) for name in escaping):
            return None
        if any(self._has_free_size(kind) for kind in assigned.values()):
            return None
        params, args, names = self._params(uses, set(assigned), loops)
        if params is None:
            return None
        entries = self._entries(part, uses, params, args, loops)
        written = [name for name in sorted(uses.writes) if name in names or name in escaping]
        made = f"part{self._number()}"
        if not params and not written:
            return None
        self.program = replace(
            self.program,
            blocks={**self.program.blocks, made: tuple(renamed(one, names, entries) for one in part)},
            params={**self.program.params, made: tuple(params)},
            returns={**self.program.returns, made: tuple(names.get(name, name) for name in written)},
        )
        declared = tuple(Assign(name, assigned[name]) for name in escaping)
        return (*declared, Call(made, tuple(args), tuple(map(Access, written))))

    def _params(
        self, uses: Uses, assigned: set[str], loops: tuple[Loop, ...]
    ) -> tuple[list[Param] | None, list[Operand | Expr], dict[str, str]]:
        """Parameters, what the call gives for them, and what variables are called in the block."""
        params: list[Param] = []
        args: list[Operand | Expr] = []
        names: dict[str, str] = {}
        indices = {loop.index for loop in loops}
        for name in sorted((uses.reads | uses.writes) - assigned):
            decl, kind = self.decls.get(name), self.kinds.get(name)
            if name in indices:
                params.append(Param(name, "index"))
                args.append(name)
                continue
            if decl is not None and decl.entries:
                if name not in uses.writes | uses.through and self.rng.random() < 0.5:
                    names[name] = f"P{self._number()}"
                    params.append(Param(names[name], "prefix"))
                    args.append(Access(name))
                continue
            if kind is None or (decl is not None and not decl.is_plain):
                continue
            is_fixed = name in uses.through | uses.kept or self._has_free_size(kind)
            if decl is not None and (is_fixed or self.rng.random() < 0.4):
                continue
            if is_fixed:
                return None, [], {}
            names[name] = name if decl is None else f"q{self._number()}"
            params.append(Param(names[name], kind, is_open=self.rng.random() < 0.4))
            args.append(Access(name))
        return params, args, names

    def _entries(
        self, part: Body, uses: Uses, params: list[Param], args: list[Operand | Expr], loops: tuple[Loop, ...]
    ) -> dict[Access, str]:
        """Entries of prefix tables that are passed as tensors."""
        found: dict[Access, str] = {}
        given = {one.base for one in args if isinstance(one, Access)}
        for statement in walk(part):
            for one in statement.inputs if isinstance(statement, Op) else ():
                decl = self.decls.get(one.base) if isinstance(one, Access) else None
                if not isinstance(one, Access) or decl is None or not decl.entries or one in found:
                    continue
                is_read_only = one.base not in uses.writes | uses.through | given
                if is_read_only and self._is_inside(one, decl, loops) and self.rng.random() < 0.7:
                    found[one] = f"w{self._number()}"
                    params.append(Param(found[one], decl.kind, is_open=self.rng.random() < 0.3))
                    args.append(one)
        return found

    def _is_inside(self, one: Access, decl: Decl, loops: tuple[Loop, ...]) -> bool:
        """Whether an index is one of a prefix table's for certain."""
        index = (one.indices or ("",))[0]
        if isinstance(index, int):
            return 0 <= index < decl.entries
        ends = {loop.index: (loop.start, loop.end) for loop in loops}
        start, end = ends.get(index, ("", "")) if isinstance(index, str) else ("", "")
        return isinstance(start, int) and isinstance(end, int) and start >= 0 and end <= decl.entries

    def _is_used_elsewhere(self, name: str, block: str, part: Body) -> bool:
        if name in self.program.outputs:
            return True
        inside = sum(_mentions(part, name))
        own = sum(sum(_mentions(body, name)) for body in self.program.blocks.values())
        own += 0 if block in self.program.blocks else inside
        return own > inside

    def _has_free_size(self, kind: Kind) -> bool:
        return bool(self.free & set(_sizes(kind)))

    def _number(self) -> int:
        self.count += 1
        return self.count

    # --- calls of known blocks ------------------------------------------------------------------------------------

    def _another(self) -> Call | None:
        """One more call of a block."""
        if not self.program.params:
            return None
        block = self.rng.choice([*self.program.params])
        args: list[Operand | Expr] = []
        for param in self.program.params[block]:
            given = self._argument(param)
            if given is None:
                return None
            args.append(given)
        outputs: list[str] = []
        for name in self.program.returns[block]:
            kind = self._kind_of(block, name)
            fitting = [
                decl.name
                for decl in self.program.decls
                if decl.is_plain and decl.section != "constant" and decl.kind == kind and decl.name not in outputs
            ]
            if not fitting:
                return None
            outputs.append(self.rng.choice(fitting))
        return Call(block, tuple(args), tuple(map(Access, outputs)))

    def _kind_of(self, block: str, name: str) -> Kind:
        own = {one.name: one.kind for one in self.program.params[block] if isinstance(one.kind, Kind)}
        return own[name] if name in own else self.kinds[name]

    def _argument(self, param: Param) -> Operand | Expr | None:
        if param.kind == "index":
            known: list[Expr] = [0, 1, 2, *sorted(self.program.sizes.keys() - self.free)]
            return self.rng.choice(known)
        if not isinstance(param.kind, Kind):
            return None
        kind = param.kind
        fitting: list[Operand] = [Access(one.name) for one in self.program.decls if one.is_plain and one.kind == kind]
        fitting += [
            Access(one.name, (self.rng.randrange(one.entries),))
            for one in self.program.decls
            if one.entries and one.kind == kind
        ]
        if not kind.dims and kind.dtype in (*INTEGERS, *FLOATS):
            fitting.append(Literal(1.0 if kind.dtype in FLOATS else 1 if kind.dtype not in ("i1",) else 0))
        return self.rng.choice(fitting) if fitting else None


def _sizes(kind: Kind) -> Iterator[str]:
    return (name for _, counts in kind.dims for name, _ in counts)


def _mentions(body: Sequence[Statement], name: str) -> Iterator[int]:
    for statement in walk(body):
        found = Uses()
        _touch(found, statement)
        condition = statement.condition if isinstance(statement, Branch) else None
        handed = statement.names if isinstance(statement, Yield | Await) else ()
        yield name in found.reads | found.writes | found.kept or name == condition or name in handed


def called_of(seed: int, *, has_heap: bool = True) -> Program:
    """The program of a seed with calls in it: as many as let it end in time."""
    original = program_of(seed, has_heap=has_heap)
    outlining = Outlining(original, seed)
    plain = outlining.run()
    has_consumers = any(isinstance(one, Yield) for one in plain.blocks["entry"])
    more = plain if has_consumers else outlining.again()
    return next((one for one in (more, plain) if _ends_in_time(one)), original)


def _ends_in_time(program: Program) -> bool:
    machine = Machine(program)
    try:
        for step in program.steps:
            machine.prepare(step.before)
            try:
                machine.step(step.inputs)
            except FailedError:
                continue
    except TooMuchError:
        return False
    return True
