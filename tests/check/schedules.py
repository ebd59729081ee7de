"""An oracle for yield and await: small graphs run in every order there is, and values remember how they came about.

It follows the rules of the language, not the code: a consumer starts when all it awaits has been yielded, works on
copies of that, and entry gets what it wrote when it awaits it. When all has been yielded again, it starts again.
"""

from dataclasses import dataclass
from random import Random

VARIABLES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Node:
    """``op``: the first name becomes a function of the others; ``yield`` and ``await`` of all names."""

    kind: str
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The node as source."""
        if self.kind == "op":
            return f"op add({self.names[1]}, {self.names[2]}) >> {self.names[0]};"
        return f"{self.kind} {', '.join(self.names)};"


@dataclass(frozen=True)
class Program:
    """Entry and its consumers."""

    entry: tuple[Node, ...]
    consumers: tuple[tuple[Node, ...], ...]

    @property
    def text(self) -> str:
        """The graph as source."""
        variables = " ".join(f"{name}: f32;" for name in VARIABLES)
        entry = " ".join(node.text for node in self.entry)
        blocks = [
            f"block c{number} {{ {' '.join(node.text for node in nodes)} }}"
            for number, nodes in enumerate(self.consumers)
        ]
        return f"dynamic {{ {variables} }}\nblock entry {{ {entry} return; }}\n" + "\n".join(blocks)


def random_program(random: Random) -> Program:
    """One or two consumers and an entry that yields and awaits; legal more often than pure chance would have it."""
    consumers = []
    for _ in range(random.choice((1, 1, 2))):
        awaited = tuple(random.sample(VARIABLES, random.choice((1, 1, 2))))
        ops = [_op(random) for _ in range(random.choice((1, 1, 2)))]
        ending = Node("yield", awaited) if random.random() < 0.8 else Node("return", ())
        consumers.append((Node("await", awaited), *ops, ending))
    handed = sorted({name for nodes in consumers for name in nodes[0].names})
    entry: list[Node] = [_op(random) for _ in range(random.choice((0, 1)))]
    for name in handed:
        entry += [Node("yield", (name,)), *(_op(random) for _ in range(random.choice((0, 1))))]
    for again in range(random.choice((1, 1, 2))):
        for name in handed if again else ():
            entry += [Node("yield", (name,)), *(_op(random) for _ in range(random.choice((0, 1))))]
        for name in random.sample(handed, random.choice((0, len(handed), len(handed)))):
            entry += [Node("await", (name,)), *(_op(random) for _ in range(random.choice((0, 1))))]
    return Program(tuple(entry), tuple(consumers))


def _op(random: Random) -> Node:
    return Node("op", tuple(random.choice(VARIABLES) for _ in range(3)))


def outcomes(program: Program) -> set[str]:
    """The final values of all schedules; ``"stuck"`` where a schedule waits forever."""
    found: set[str] = set()
    start = _State(program)
    seen: set[str] = set()
    todo = [start]
    while todo:
        state = todo.pop()
        if repr(state) in seen:
            continue
        seen.add(repr(state))
        following = state.following()
        if not following:
            found.add(state.result())
        todo += following
    return found


class _State:
    """A moment of a step: where every task is, and what the variables are."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values = {name: name for name in VARIABLES}
        self.entry = 0
        self.tasks: dict[int, tuple[int, dict[str, str]]] = {}
        self.yielded: dict[str, str] = {}
        self.returned: dict[str, str] = {}
        self.given: dict[int, frozenset[str]] = {}

    def __repr__(self) -> str:
        tasks = sorted(self.tasks.items())
        given = sorted((number, sorted(names)) for number, names in self.given.items())
        return repr((self.values, self.entry, tasks, self.yielded, self.returned, given))

    def copy(self) -> "_State":
        other = _State(self.program)
        other.values, other.entry = dict(self.values), self.entry
        other.tasks = {number: (at, dict(own)) for number, (at, own) in self.tasks.items()}
        other.yielded, other.returned, other.given = dict(self.yielded), dict(self.returned), dict(self.given)
        return other

    def is_done(self, number: int) -> bool:
        at = self.tasks.get(number, (0, {}))[0]
        return at == len(self.program.consumers[number]) and not self.given.get(number)

    def following(self) -> "list[_State]":
        found = []
        if self.entry < len(self.program.entry) and self._can_go_on(self.program.entry[self.entry]):
            found.append(self._after_entry())
        running = [number for number, (at, _) in self.tasks.items() if at < len(self.program.consumers[number])]
        return found + [self._after_consumer(number) for number in running]

    def _can_go_on(self, node: Node) -> bool:
        takers = [
            number
            for number, nodes in enumerate(self.program.consumers)
            if node.kind == "await" and set(nodes[0].names) & set(node.names)
        ]
        return all(self.is_done(number) for number in takers)

    def _after_entry(self) -> "_State":
        after, node = self.copy(), self.program.entry[self.entry]
        after.entry += 1
        if node.kind == "op":
            after.values[node.names[0]] = f"e{self.entry}({self.values[node.names[1]]},{self.values[node.names[2]]})"
        elif node.kind == "await":
            after.values |= {name: after.returned.pop(name) for name in node.names if name in after.returned}
        else:
            after.yielded |= {name: self.values[name] for name in node.names}
            for number, nodes in enumerate(self.program.consumers):
                given = after.given.get(number, frozenset()) | (set(nodes[0].names) & set(node.names))
                after.given[number] = frozenset(given)
                if given == {*nodes[0].names}:
                    after.given[number] = frozenset()
                    after.tasks[number] = (1, {name: after.yielded[name] for name in nodes[0].names})
        return after

    def _after_consumer(self, number: int) -> "_State":
        after = self.copy()
        at, own = after.tasks[number]
        node = self.program.consumers[number][at]
        if node.kind == "op":
            target, *operands = node.names
            read = [own.get(name, after.values[name]) for name in operands]
            (own if target in own else after.values)[target] = f"c{number}.{at}({','.join(read)})"
        elif node.kind == "yield":
            after.returned |= {name: own[name] for name in node.names if own[name] != after.yielded[name]}
        after.tasks[number] = (at + 1, own)
        return after

    def result(self) -> str:
        if self.entry < len(self.program.entry):
            return "stuck"
        return repr(self.values | self.returned)
