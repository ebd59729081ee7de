"""What has a body in random programs: loops, scopes, branches, called blocks, consumers; and whole programs."""

from collections.abc import Sequence

from tests.differential.programs.expressions import Body, expression, term
from tests.differential.programs.interpret import Machine
from tests.differential.programs.making import Env, Making, anything
from tests.differential.programs.numbers import INTEGERS, TERNARY, FailedError
from tests.differential.programs.statements import simple
from tests.differential.programs.tables import TooMuchError
from tests.differential.programs.tree import (
    Access,
    Assign,
    Await,
    Branch,
    Count,
    Expr,
    Literal,
    Loop,
    Op,
    Operand,
    Program,
    Read,
    Reset,
    Scope,
    Statement,
    Step,
    Transfer,
    Write,
    Yield,
    expr_names,
    index_names,
    walk,
)

ATTEMPTS = 60
DEEPEST = 3


def touched(making: Making, body: Sequence[Statement]) -> tuple[set[str], set[str]]:
    """The names that statements read, and those they write, called blocks included."""
    reads: set[str] = set()
    writes: set[str] = set()

    def read(operand: Operand) -> None:
        if isinstance(operand, Access):
            reads.add(operand.base)
            reads.update(index_names(operand))

    def write(access: Access) -> None:
        writes.add(access.base)
        reads.update(index_names(access))

    for statement in walk(body):
        match statement:
            case Assign(name, _):
                writes.add(name)
            case Op(_, inputs, outputs):
                for one in inputs:
                    read(one)
                for output in outputs:
                    write(output)
            case Transfer(source, target):
                read(source)
                write(target)
            case Read(source, name):
                read(source)
                writes.add(name)
            case Write(name, target):
                reads.add(name)
                write(target)
            case Count(name, amount, _):
                reads.update((name, *expr_names(amount)))
                writes.add(name)
            case Reset(target):
                write(target)
            case Loop(_, _, start, end, _):
                reads.update((*expr_names(start), *expr_names(end)))
            case Branch(yes, condition, no):
                reads.update(one for one in (condition,) if one is not None)
                for block in (yes, no):
                    if block is not None:
                        reads |= making.effects[block][0]
                        writes |= making.effects[block][1]
            case _:
                pass
    return reads, writes


# --- loops, scopes, branches ------------------------------------------------------------------------------------------


def statements(making: Making, env: Env, count: int) -> Body:
    """Some statements, a few of them with bodies."""
    body: Body = []
    for _ in range(count):
        choice = making.rng.random()
        if choice < 0.13 and env.depth < DEEPEST:
            loop(making, env, body)
        elif choice < 0.20 and env.depth < DEEPEST:
            branch(making, env, body)
        elif choice < 0.25 and env.depth < DEEPEST:
            call(making, env, body)
        elif choice < 0.26 and env.depth < DEEPEST:
            inner = statements(making, env, making.number(1, 3))
            body += [Scope(making.name("scope"), tuple(inner))] if inner else []
        else:
            simple(making, env, body)
    return body


def _bounds(making: Making, env: Env) -> tuple[Expr, Expr, int | None]:
    """Where a loop begins and ends, and what its index stays below, where that is known."""
    start: Expr = making.pick((0, 0, 0, 0, 1, 2))
    choice = making.rng.random()
    if choice < 0.25:
        end = making.number(0, 3)
        return start, end, end
    if choice < 0.6:
        return start, term(making, env), None
    if choice < 0.85:
        most = making.number(1, 4)
        return start, ("%", expression(making, env), most), most
    return term(making, env), term(making, env), None


def loop(making: Making, env: Env, body: Body) -> None:
    """A loop whose body uses its index; what is declared in it may be used behind it."""
    start, end, most = _bounds(making, env)
    index = making.name("j")
    inner = env.inner(depth=env.depth + 1, indices=[*env.indices, (index, most)])
    own = statements(making, inner, making.number(1, 4))
    if not own:
        return
    body.append(Loop(making.name("l"), index, start, end, tuple(own)))
    if env.is_entry and making.chance(0.3):
        # A temporary that a loop declares is there behind it, too, even if the loop did not run.
        env.readable, env.writable = inner.readable, inner.writable


def block(making: Making, env: Env, prefix: str, count: int) -> str:
    """A block that may touch what the place of its call may."""
    inner = env.inner(is_entry=False, depth=env.depth + 1, indices=[])
    own = statements(making, inner, count)
    name = making.name(prefix)
    making.blocks[name] = tuple(own)
    making.effects[name] = touched(making, own)
    return name


def _known_block(making: Making, env: Env) -> str | None:
    """A block from elsewhere, if it touches only what may be touched here."""
    may_read = env.readable.keys() | env.tables | making.sizes.keys()
    fitting = [
        name
        for name, (reads, writes) in making.effects.items()
        if reads <= may_read | set(_own_indices(making, name)) and writes <= env.writable
    ]
    return making.pick(fitting) if fitting else None


def _own_indices(making: Making, name: str) -> list[str]:
    """The indices of the loops in a block, which are no variables of anybody else."""
    found: list[str] = []
    pending = [name]
    while pending:
        for statement in walk(making.blocks[pending.pop()]):
            if isinstance(statement, Loop):
                found.append(statement.index)
            elif isinstance(statement, Branch):
                pending += [one for one in (statement.yes, statement.no) if one is not None]
    return found


def branch(making: Making, env: Env, body: Body) -> None:
    """One of two blocks, by a condition that comes from data; one of them may be empty."""
    conditions = making.variables(env, lambda kind: kind.dtype == "bool" and not kind.dims)
    if not conditions:
        return
    yes = block(making, env, "yes", making.number(1, 3))
    known = _known_block(making, env) if making.chance(0.3) else None
    no = known or block(making, env, "no", making.number(0, 2) if making.chance(0.7) else 0)
    arms = (yes, no) if making.chance(0.7) else (no, yes)
    body.append(Branch(arms[0], making.pick(conditions), arms[1]))


def call(making: Making, env: Env, body: Body) -> None:
    """A block that is called, here for the first time or again."""
    known = _known_block(making, env) if making.chance(0.4) else None
    body.append(Branch(known or block(making, env, "called", making.number(1, 4))))


# --- consumers --------------------------------------------------------------------------------------------------------


def consumers(making: Making, env: Env, body: Body, *, is_last: bool) -> Env:
    """Variables are handed to one block or several that work while entry goes on, and come back.

    Returns what entry may touch from then on.
    """
    able = [name for name in making.variables(env, anything, written=True) if name not in making.yielded]
    if not able:
        return env
    handed = [making.pick(able)]
    if len(able) > 2 and making.chance(0.35):
        handed = list(dict.fromkeys([*handed, making.pick(able)]))
    making.yielded |= set(handed)
    names = [making.name("takes") for _ in range(making.pick((1, 2, 2, 2, 3)))]
    shared, own = _divided(making, env, handed, len(names) + 1)
    writer = 0 if making.chance(0.6) else making.number(0, len(names) - 1)
    if making.chance(0.4):
        body.append(Branch(_changing(making, env, handed[0])))
    for place, name in enumerate(names):
        awaited = handed if len(handed) == 1 or making.chance(0.5) else [making.pick(handed)]
        if place == 0:
            awaited = handed
        _consumer(making, env, name, awaited, shared, own[place + 1], is_writer=place == writer)
    for turn in range(2 if making.chance(0.3) else 1):
        if turn:
            body += statements(making, env, making.number(0, 3))
        body.append(Yield(tuple(handed)))
        meanwhile = _limited(env, shared, own[0], [])
        body += statements(making, meanwhile, making.number(0, 4))
        if is_last and making.chance(0.25):
            # What is never awaited stays away, and what consumers touch is theirs to the end.
            return meanwhile
        body.append(Await(tuple(handed)))
        for name, kind in meanwhile.readable.items():
            env.readable.setdefault(name, kind)
        env.writable |= meanwhile.writable
    return env


def _changing(making: Making, env: Env, name: str) -> str:
    """A block that surely gives a variable another value."""
    dtype = env.readable[name].dtype
    op = "not" if dtype in (*INTEGERS, "bool") else "neg" if dtype in TERNARY else "sub"
    own = Access(name)
    more = statements(making, env.inner(is_entry=False, depth=DEEPEST, indices=[], writable={name}), 1)
    inputs = (own, Literal(1.0)) if op == "sub" else (own,)
    changes = making.name("changes")
    making.blocks[changes] = (Op(op, inputs, (own,)), *more)
    making.effects[changes] = touched(making, making.blocks[changes])
    return changes


def _divided(making: Making, env: Env, handed: Sequence[str], parts: int) -> tuple[set[str], list[set[str]]]:
    """What all may read, and what each may write: entry and the consumers."""
    everything = (env.readable.keys() | env.tables) - set(handed)
    own: list[set[str]] = [set() for _ in range(parts)]
    shared: set[str] = set()
    for name in sorted(everything):
        if name in env.writable and making.chance(0.75):
            own[making.number(0, parts - 1)].add(name)
        else:
            shared.add(name)
    return shared, own


def _limited(env: Env, shared: set[str], own: set[str], copies: Sequence[str]) -> Env:
    visible = shared | own | set(copies)
    return env.inner(
        readable={name: kind for name, kind in env.readable.items() if name in visible},
        writable={*own},
        tables=env.tables & visible,
    )


def _consumer(
    making: Making, env: Env, name: str, awaited: Sequence[str], shared: set[str], own: set[str], *, is_writer: bool
) -> None:
    inner = _limited(env, shared, own, awaited).inner(is_entry=False, depth=1, indices=[])
    if is_writer:
        inner.writable |= set(awaited)
    body: Body = []
    if is_writer and making.chance(0.7):
        body.append(Branch(_changing(making, inner, awaited[0])))
    kept = [one for one in own if env.readable.get(one) == env.readable[awaited[0]]]
    if kept and making.chance(0.7):
        body.append(Transfer(Access(awaited[0]), Access(making.pick(sorted(kept)))))
    body += statements(making, inner, making.number(1, 4))
    making.blocks[name] = (Await(tuple(awaited)), *body, Yield(tuple(awaited)))


# --- whole programs ---------------------------------------------------------------------------------------------------


def program_of(seed: int, *, has_heap: bool = True, has_floats: bool = True) -> Program:
    """The program of a seed: the first one that ends in time and in which not everything fails.

    Without a heap all tables are fixed.
    """
    for attempt in range(ATTEMPTS):
        made = _attempt(Making(seed, attempt, has_heap=has_heap, has_floats=has_floats))
        if made is not None:
            return made
    message = f"nothing comes of the seed {seed}"
    raise AssertionError(message)


def _attempt(making: Making) -> Program | None:
    making.setup()
    env = making.outer()
    body = statements(making, env, making.number(3, 8))
    groups = making.pick((0, 0, 0, 1, 1, 2))
    for place in range(groups):
        env = consumers(making, env, body, is_last=place + 1 == groups)
        body += statements(making, env, making.number(1, 4))
    body += statements(making, env, making.number(1, 4))
    outputs = _outputs(making, env)
    made = making.finished(body, outputs, _steps(making))
    return made if _is_fine(made, making) else None


def _outputs(making: Making, env: Env) -> list[str]:
    free = set(making.free_sizes)
    found = []
    for name, kind in env.readable.items():
        decl = making.decls.get(name)
        if free & {size for _, counts in kind.dims for size, _ in counts} and making.chance(0.8):
            continue
        share = (
            0.6 if decl is None else {"volatile": 0.9, "dynamic": 0.3, "constant": 0, "persistent": 0.1}[decl.section]
        )
        if making.chance(share):
            found.append(name)
    return found


def _steps(making: Making) -> list[Step]:
    found = []
    actions = ("", "", "", "", "", "save", "load", "reset", "restore")
    saved = False
    for place in range(making.number(3, 5)):
        before = making.pick(actions) if place else ""
        if before in {"load", "restore"} and not saved:
            before = "save"
        elif saved and making.chance(0.35):
            before = "load"
        saved |= before == "save"
        found.append(Step(_inputs(making), before))
    return found


def _inputs(making: Making) -> dict[str, object]:
    sizes = {
        name: making.pick((0, bound, making.number(0, bound), making.number(0, bound)))
        for name, bound in making.sizes.items()
    }
    found = {}
    for decl in making.decls.values():
        if decl.section != "dynamic":
            continue
        kind = decl.kind
        if not kind.dims and kind.dtype != "bool":
            value = making.pick((0, 0, 1, 1, 2, 2, 3, 4, -1)) if kind.dtype[0] == "i" else making.pick((0, 1, 1, 2, 3))
            found[decl.name] = making.values("i64", ()) * 0 + value
            continue
        own = {name: making.number(0, bound) for name, bound in making.sizes.items()} if making.chance(0.01) else sizes
        shape = [number + sum(own[name] * count for name, count in counts) for number, counts in kind.dims]
        found[decl.name] = making.values(kind.dtype, shape)
    return found


def _is_fine(program: Program, making: Making) -> bool:
    """Whether a program ends in time; of those in which every step fails, few are."""
    machine = Machine(program)
    failed = 0
    try:
        for step in program.steps:
            machine.prepare(step.before)
            try:
                machine.step(step.inputs)
            except FailedError:
                failed += 1
    except TooMuchError:
        return False
    share = failed / len(program.steps)
    return share == 0 or (share < 1 and making.chance(0.8)) or making.chance(0.08)
