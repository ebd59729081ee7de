"""Random graphs with yield and await that are legal by construction, and small changes that make them illegal."""

import numpy as np

SIZE = 4


def _ops(rng: np.random.Generator, readable: list[str], writable: list[str], count: int) -> list[str]:
    lines = []
    for _ in range(count):
        if not writable:
            break
        a, b = rng.choice(readable, 2)
        target = rng.choice(writable)
        name = rng.choice(["add", "sub", "mul", "min", "max"])
        line = f"op {name}({a}, {b}) >> {target};"
        if rng.random() < 0.2:
            line = f"loop again{rng.integers(1 << 30)} (i in 0..{rng.integers(1, 4)}) {{ {line} }}"
        lines.append(line)
    return lines


def random_graph(seed: int) -> str:
    """A legal graph: every variable has one owner at a time, and hand-overs are awaited in time."""
    rng = np.random.default_rng(seed)
    handed = [f"h{n}" for n in range(rng.integers(1, 4))]
    constants = ["c0", "c1"]
    entry_own = [f"e{n}" for n in range(rng.integers(1, 3))]
    count = int(rng.integers(1, 4))
    takes = [sorted(rng.choice(handed, rng.integers(1, len(handed) + 1), replace=False)) for _ in range(count)]
    for name in handed:
        if not any(name in taken for taken in takes):
            takes[0] = sorted([*takes[0], name])
    writer = {name: int(rng.choice([n for n in range(count) if name in takes[n]])) for name in handed}
    consumers, results = [], []
    for number, taken in enumerate(takes):
        own = [f"r{number}"]
        results += own
        mine = [name for name in taken if writer[name] == number and rng.random() < 0.8]
        body = _ops(rng, [*taken, *constants, *own], [*own, *mine], int(rng.integers(1, 5)))
        if rng.random() < 0.3:
            body.append(f"cache.write r{number} >> K{number}[step];")
        order = list(rng.permutation(taken))
        awaited = ", ".join(order)
        consumers.append(
            f"block consumer{number} {{ await {awaited}; {' '.join(body)} yield {', '.join(sorted(taken))}; }}"
        )
    first = _ops(rng, [*handed, *constants, *entry_own], [*handed, *entry_own], 3)
    yields = [f"yield {', '.join(handed)};"] if rng.random() < 0.5 else [f"yield {name};" for name in handed]
    middle = _ops(rng, [*constants, *entry_own], entry_own, int(rng.integers(1, 6)))
    awaits = [f"await {', '.join(handed)};"]
    last = _ops(rng, [*handed, *constants, *entry_own, *results], [*handed, *entry_own, *results], 4)
    again: list[str] = []
    if rng.random() < 0.4:  # a second round, in which every consumer runs again
        again = [f"yield {name};" for name in rng.permutation(handed)]
        if rng.random() < 0.7 or any("cache.write" in text for text in consumers):
            again += [*_ops(rng, [*constants, *entry_own], entry_own, 2), *awaits]
    body = [*first, *yields, *middle, *awaits, *last, *again, "cache.increment step;"]
    variables = [*handed, *entry_own, *results]
    declared = " ".join(f"{name}: f64[{SIZE}] @init({rng.integers(1, 4)}.5);" for name in variables)
    tables = " ".join(f"K{number}(t): f64[{SIZE}] @table;" for number in range(count))
    return (
        f"constant {{ c0: f64[{SIZE}] @init(1.25); c1: f64[{SIZE}] @init(-0.5); }}\n"
        f"persistent {{ step: i32; {declared} {tables} }}\n"
        f"block entry {{\n    " + "\n    ".join([*body, "return;"]) + "\n}\n" + "\n".join(consumers) + "\n"
    )


def made_illegal(text: str, seed: int) -> str:
    """The same graph with one of the forbidden things in it."""
    rng = np.random.default_rng(seed)
    head, entry_and_rest = text.split("block entry {", 1)
    entry, rest = entry_and_rest.split("\n}\n", 1)
    lines = entry.split("\n")
    at_await = next(n for n, line in enumerate(lines) if line.strip().startswith("await"))
    last_yield = max(n for n, line in enumerate(lines[:at_await]) if line.strip().startswith("yield"))
    choice = rng.integers(4)
    if choice == 0:
        lines.insert(at_await, "    op add(h0, c0) >> h0;")
    elif choice == 1:
        lines.insert(last_yield + 1, "    op add(c0, c0) >> r0;")
        rest = rest.replace("yield", "op add(r0, c0) >> r0; yield", 1)
    elif choice == 2:
        lines.insert(at_await, "    yield h0;")
    else:
        rest += "block rival { await h0; op add(h0, c0) >> h0; yield h0; }\n"
        rest += "block rival2 { await h0; op sub(h0, c0) >> h0; yield h0; }\n"
    return head + "block entry {" + "\n".join(lines) + "\n}\n" + rest
