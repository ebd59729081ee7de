"""Random graphs of cache nodes: tables, matrices that grow, and parts of plain tensors, of all kinds of dtypes.

Lengths of what is read are dynamic sizes, one for each, unless the checker knows them; indices are often outside, so
that both sides must agree on what is an error too.
"""

import random
import re
from collections.abc import Sequence

from openinfer.check import check
from openinfer.lang import graph

_ONES = {"t1": ("1", "-1"), "bool": ("true", "false")}
_NUMBERS = ("0", "1", "2", "z+3", "a", "b", "a+1", "b-1", "a%3", "b/2", "z+5", "a*b", "z+7", "b-a", "z", "a/(z+c)")
_DTYPES = ("f32", "i4", "u2", "t1", "t2", "f16", "bool", "i8", "f64", "u1", "i64")


class _Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.dtype = self.random.choice(_DTYPES)
        self.variables: list[str] = []
        self.sizes: list[str] = []
        self.sections: list[str] = []
        self.head: list[str] = []
        self.body: list[str] = []
        self.read: list[str] = []

    def initial(self) -> str:
        return self.random.choice(["", f" @init({_ONES.get(self.dtype, ('1', '0'))[0]})"])

    def number(self) -> str:
        return self.random.choice(_NUMBERS)

    def slice(self) -> str:
        start, kind = self.number(), self.random.randrange(6)
        ends = (f"{start}..", f"..{start}", f"{start}..{start}+{self.random.randint(0, 3)}", "-2..-1", f"..{'-1'}")
        return ends[kind] if kind < len(ends) else ""

    def declared(self, prefix: str, extents: Sequence[str], value: str = "") -> str:
        name = f"{prefix}{len(self.variables)}"
        dims = f"[{', '.join(extents)}]" if extents else ""
        self.variables.append(f"{name}: {self.dtype}{dims}{value};")
        return name

    def size(self) -> str:
        self.sizes.append(f"N{len(self.sizes)} <= 12;")
        return f"N{len(self.sizes) - 1}"

    def constant(self, extents: Sequence[int]) -> str:
        value = self.random.choice(_ONES.get(self.dtype, ("1", "0")))
        return self.declared("w", [str(extent) for extent in extents], f" @init({value})")

    def text(self, declaration: str) -> str:
        body = self.body
        if self.random.random() < 0.4:
            body = ["loop again (turn in 0..2) {", *body, "}"]
        returned = f"return {', '.join(self.read)};" if self.read else "return;"
        scalars = "a: i32 @init(1); b: i64 @init(2); z: u8; c: i4 @init(1);"
        return (
            f"{' '.join(self.sections)} sizes {{ {' '.join(self.sizes)} }} volatile {{ {' '.join(self.variables)} }} "
            f"persistent {{ {scalars} {declaration} }} block entry {{ {' '.join([*self.head, *body])} {returned} }}"
        )


# --- tables -----------------------------------------------------------------------------------------------------------

_TABLES = {
    "K(t): {}[3] @table": (("t",), (), (), ("t=6",)),
    "K(l, t): {}[3] @table": (("l", "t"), (), (), ("l=4", "t=6")),
    "K(i, j): {}[2, 3] @auto_dim(i, j)": (("i", "j"), ("i", "j"), (2, 3), ("i=4", "j=3")),
    "K(i): {}[2, 3] @auto_dim(i)": (("i",), ("i",), (2,), ("i=4",)),
    "K(l, i): {}[2, 3] @table @auto_dim(i)": (("l", "i"), ("i",), (2,), ("l=3", "i=4")),
}


def table_graph(seed: int) -> str:
    """A graph that reads, writes and resets parts of one table."""
    maker = _Maker(seed)
    rng = maker.random
    form = rng.choice(list(_TABLES))
    indices, auto, start, bounds = _TABLES[form]
    fixed = [bound for bound in bounds if rng.random() < 0.7]
    declaration = form.format(maker.dtype) + (f" @fixed({', '.join(fixed)})" if fixed else "") + f"{maker.initial()};"
    order = [*(one for one in indices if one not in auto), *auto]
    entry = [] if len(auto) == 2 else [3]
    for _ in range(rng.randint(3, 8)):
        action = rng.random()
        if action < 0.2:
            maker.body.append(f"cache.increment {rng.choice(['', '2 '])}{rng.choice('abc')};")
        elif action < 0.6:
            _write(maker, indices, auto, start, order, entry)
        elif action < 0.85:
            parts = {one: maker.slice() if rng.random() < 0.6 else maker.number() for one in indices}
            is_grown = bool(auto) and all("." not in parts[one] and parts[one] for one in auto)
            kept = [one for one in order if "." in parts[one] or not parts[one] or (is_grown and one in auto)]
            name = maker.declared("r", [*(maker.size() for _ in kept), *map(str, entry)])
            maker.read.append(name)
            maker.body.append(f"cache.read K[{', '.join(parts.values())}] >> {name};")
        else:
            given = [maker.slice() if rng.random() < 0.3 else maker.number() for _ in indices]
            given = given[: rng.randint(0, len(indices))]
            maker.body.append(f"cache.reset K[{', '.join(given)}];" if given else "cache.reset K;")
    return fitted(maker.text(declaration))


def _write(
    maker: _Maker,
    indices: Sequence[str],
    auto: Sequence[str],
    start: Sequence[int],
    order: Sequence[str],
    entry: Sequence[int],
) -> None:
    rng = maker.random
    parts: dict[str, str] = {}
    lengths: dict[str, int] = {}
    for one in indices:
        first = rng.choice(["0", "a", "b", "1", "a+1"])
        if rng.random() < 0.6:
            lengths[one] = rng.choice([0, 1, 2, 3, 1, 2, 3])
            parts[one] = f"{first}..{first}+{lengths[one]}"
        else:
            parts[one] = first
    if auto and not any(one in lengths for one in auto):
        for one, extent in zip(auto, start, strict=True):  # all of the matrix, grown by one
            parts[one], lengths[one] = "1", extent + 1
    value = maker.constant([*(lengths[one] for one in order if one in lengths), *entry])
    maker.body.append(f"cache.write {value} >> K[{', '.join(parts.values())}];")


# --- parts of plain tensors -------------------------------------------------------------------------------------------


def part_graph(seed: int, memory: str = "persistent") -> str:
    """A graph that reads and writes parts of one plain tensor; those of a persistent one are also reset."""
    maker = _Maker(seed)
    rng = maker.random
    dims = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    declaration = f"c0: {maker.dtype}[{', '.join(map(str, dims))}]"
    is_persistent = memory == "persistent"
    if memory == "assign":
        maker.head.append(f"assign {declaration};")
    elif not is_persistent:
        maker.sections.append(f"{memory} {{ {declaration}; }}")
    kept_declaration = f"{declaration}{maker.initial()};" if is_persistent else ""
    for _ in range(rng.randint(3, 7)):
        action = rng.random()
        if action < 0.15:
            maker.body.append(f"cache.increment {rng.choice('abc')};")
        elif action < 0.6:
            parts, lengths = [], []
            for extent in dims:
                kind = rng.random()
                length = extent if kind < 0.3 else rng.randint(0, min(extent, 2))
                first = rng.choice(["0", "z", "a%2"])
                parts.append("" if kind < 0.3 else f"{first}..{first}+{length}" if kind < 0.6 else first)
                lengths += [length] if kind < 0.6 else []
            maker.body.append(f"transfer {maker.constant(lengths)} >> c0[{', '.join(parts)}];")
        elif action < 0.9:
            parts = [maker.slice() if rng.random() < 0.6 else rng.choice(["0", "z", "a%2", "a-1"]) for _ in dims]
            kept = [part for part in parts if "." in part or not part]
            name = maker.declared("r", [maker.size() for _ in kept])
            maker.read.append(name)
            maker.body.append(f"{'cache.read' if is_persistent else 'transfer'} c0[{', '.join(parts)}] >> {name};")
        elif is_persistent:
            parts = [maker.slice() if rng.random() < 0.5 else rng.choice(["0", "z", "a%3"]) for _ in dims]
            maker.body.append(f"cache.reset c0[{', '.join(parts)}];")
    return fitted(maker.text(kept_declaration))


def fitted(text: str) -> str:
    """The graph with the extents that the checker knows in the place of sizes."""
    for _ in range(3):
        for problem in check(graph(text), None).problems:
            found = re.match(r".* is \w+\[(.*)\], but (r\d+) is", problem.message)
            declared = re.search(rf"{found[2]}: \w+\[([^\]]*)\]", text) if found else None
            if found is None or declared is None:
                continue
            pairs = zip(found[1].split(", "), declared[1].split(", "), strict=True)
            dims = ", ".join(own if extent == "?" else extent for extent, own in pairs)
            text = text.replace(declared[0], declared[0].replace(f"[{declared[1]}]", f"[{dims}]"))
    return text


def is_valid(text: str) -> bool:
    """Whether the checker finds nothing: an index that is always outside is no graph at all."""
    return check(graph(text), None).bound is not None
