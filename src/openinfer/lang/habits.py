"""Hints for code written in the habits of other languages and frameworks.

Consulted only when the text is already wrong: a rule may guess, since it only affects the wording of an error.
"""

import re
from collections.abc import Callable, Set
from dataclasses import dataclass

from openinfer.errors import Advice, Fix, fixes_of
from openinfer.ir.advice import VARYING

_NAME = r"[A-Za-z_]\w*"
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_PACKAGES = {
    "torch",
    "F",
    "nn",
    "np",
    "numpy",
    "jnp",
    "jax",
    "tf",
    "keras",
    "onnx",
    "ops",
    "self",
    "math",
    "functional",
}
_OPERATORS = dict(
    pair.split()
    for pair in (
        *("+ add", "- sub", "* mul", "/ div", "% mod", "@ matmul", "** pow"),
        *("< lt", "<= le", "> gt", ">= ge", "== eq", "!= ne", "& and", "| or", "^ xor"),
    )
)
_DTYPE_NAMES = dict(
    pair.split()
    for pair in (
        *("float f32", "single f32", "double f64", "half f16", "bfloat16 bf16", "boolean bool", "bool_ bool"),
        *("int i32", "uint u32", "long i64", "short i16", "byte u8", "char i8", "size_t u64"),
        *(f"float{bits} f{bits}" for bits in (8, 16, 32, 64)),
        *(f"{kind}{bits} {kind[0]}{bits}" for kind in ("int", "uint") for bits in (1, 2, 4, 8, 16, 32, 64)),
    )
)
_TYPES = {"tensor", "array", "ndarray", "list", "vector", "matrix", "scalar"}
_SECTIONS = {
    **dict.fromkeys(("input", "in", "args", "arguments", "placeholder", "placeholders"), "dynamic"),
    **dict.fromkeys(("weight", "weights", "param", "params", "parameter", "parameters", "const", "consts"), "constant"),
    **dict.fromkeys(("initializer", "initializers"), "constant"),
    **dict.fromkeys(
        ("output", "out", "result", "results", "temp", "temps", "local", "locals", "var", "vars"), "volatile"
    ),
    **dict.fromkeys(("cache", "caches", "memory", "buffers", "static"), "persistent"),
}
_LOOP = "loop name (i in 0..n) { ... }"
_BRANCH = "put each side in a block of its own, and choose: branch condition then_block else_block;"
_RESULT = "y = op name(x);  or, for a variable that is declared,  op name(x) >> y;"


@dataclass(frozen=True)
class HabitPlace:
    """Where the text went wrong: the enclosing section, the statement so far, the token found, and what follows."""

    inside: str
    before: str
    found: str
    after: str
    declared: Set[str] = frozenset()
    """The variables declared in the text so far."""

    @property
    def statement(self) -> str:
        """The statement, up to its ``;`` or the end of the line."""
        return re.split(r"[;{\n]", self.before + self.found + self.after, maxsplit=1)[0].strip()

    def instead(self, new: str, words: str = "write  {}") -> "Hint":
        """A hint to write another statement, a complete one, instead of this one."""
        old = self.statement + ";" * (re.match(r"[^;{\n]*;", self.before + self.found + self.after) is not None)
        return Hint(Advice(words.format(new), Fix(new, old)))

    @property
    def word(self) -> str:
        """The first word of the statement."""
        match = re.match(_NAME, self.before + self.found)
        return match.group() if match else ""


@dataclass(frozen=True)
class Hint:
    """How to write it; a ``message`` replaces the error, and is reported at the statement's first word."""

    advice: str
    message: str | None = None

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The fixes in the advice."""
        return fixes_of(self.advice)


def hint(place: HabitPlace) -> Hint | None:
    """A hint for a place that looks like a habit from elsewhere; None if it does not."""
    for rule in (_characters, _RULES.get(place.inside, _in_block)):
        found = rule(place)
        if found is not None:
            return found
    return None


def _changed(words: str, old: str, new: str) -> Hint:
    """A hint to replace a few characters."""
    return Hint(Advice(words, Fix(new, old)))


def _characters(place: HabitPlace) -> Hint | None:
    """Mistakes that are wrong anywhere."""
    found, following = place.found, place.after[:1]
    if found == "#":
        return _changed("comments begin with //", "#", "//")
    if found in ("'", "`", "\u201c", "\u201d", "\u2018", "\u2019"):
        quoted = re.match(r"([^'`\"\u201c\u201d\u2018\u2019\n]*)['`\u201c\u201d\u2018\u2019]", place.after)
        words = 'strings are written in double quotes: "text"'
        return _changed(words, found + quoted.group(), f'"{quoted[1]}"') if quoted else Hint(words)
    if not found.isascii() and found.isspace():
        return _changed("this is a space of another kind; replace it by a plain one", found, " ")
    if found == "." and (digits := re.search(r"(?<![\w.])\d+$", place.before)):
        return _changed("a number has digits on both sides of its point: 1.0", f"{digits[0]}.", f"{digits[0]}.0")
    if found == "." and following.isdigit():
        return _changed("a number has digits on both sides of its point: 0.5", f".{following}", f"0.{following}")
    if found == ";" and not place.before.strip():
        return _changed("leave out this ';'", ";", "")
    return None


# --- outside of blocks ------------------------------------------------------------------------------------------------


def _at_top(place: HabitPlace) -> Hint | None:
    word = place.word
    if word == "block" and "(" in place.before and ")" not in place.before.rpartition("(")[2]:
        return _in_params(place)
    if re.match(rf"block\s+{_NAME}\s*\(.*\)\s*-$", place.before + place.found, re.DOTALL):
        return Hint("a block returns its results in its last node: return y;")
    if re.fullmatch(r"[\w./\\~ -]+\.(oig|json)", place.statement):
        return Hint("load_graph(path) reads a graph from a file", "this is a path, not the text of a graph")
    if word in ("def", "fn", "func", "function", "class", "void", "main", "forward", "module"):
        return Hint("what runs belongs in  block entry { ... }", f"there is no '{word}' here")
    if word in ("import", "from", "include", "use", "package"):
        return Hint("a graph is complete by itself: sections, and  block entry { ... }", f"there is no '{word}' here")
    if word in _SECTIONS and re.match(r"\s*\{", place.after):
        return _changed(f"write  {_SECTIONS[word]} {{ ... }}", word, _SECTIONS[word])
    if place.found == "{" and not place.before.strip():
        return Hint("a graph in JSON is read by Graph.from_json(text), or from a file whose name ends in .json")
    if word in ("op", "assign", "loop", "return", "transfer", "branch") or re.match(rf"{_NAME}\s*=", place.statement):
        return Hint("statements belong in a block: block entry { ... }")
    return None


def _in_params(place: HabitPlace) -> Hint | None:
    """Mistakes between the parentheses of a block."""
    if place.found in (",", ")") and (name := re.search(rf"({_NAME})\s*$", place.before)):
        return Hint(f"give it a type: {name[1]}: f32[N]  or  {name[1]}: index  or  {name[1]}: prefix")
    if place.found == "=":
        return Hint("parameters have no default values: every call passes all arguments")
    return None


def _in_sizes(place: HabitPlace) -> Hint | None:
    name, statement = place.word, place.statement
    if name and (match := re.match(r"\s*(==|=|:|<)\s*(\w+$)?", statement[len(name) :])):
        size = match[2] or "5"
        words = f"write  {name} := {size};  where it is fixed, or  {name} <= {size};  where it can be less"
        fixes = (Fix(f"{name} {relation} {size}", statement) for relation in (":=", "<="))
        return Hint(Advice(words, *fixes) if match[2] else words)
    return None


def _in_memory(place: HabitPlace) -> Hint | None:
    before, found = place.before.strip(), place.found
    is_type_next = before.endswith(":")
    if is_type_next and found.lower() in _DTYPE_NAMES:
        return _changed(f"it is called {_DTYPE_NAMES[found.lower()]}", found, _DTYPE_NAMES[found.lower()])
    if is_type_next and (found.lower() in _TYPES or found in ("[", "(")):
        return Hint("write the dtype of its elements, then its shape: f32[2, 3]")
    if "[" in before.rpartition("]")[2] and found in ("?", ":", "*", ".", ".."):
        return Hint(VARYING)
    name = place.word
    if found == "(" and re.search(r":\s*\w+$", before):
        shape = re.match(r"([^();\n]*)\)", place.after)
        words = "a shape is written in square brackets: f32[2, 3]"
        return _changed(words, f"({shape[0]}", f"[{shape[1]}]") if shape else Hint(words)
    if found == "," and "[" not in before.rpartition("]")[2]:
        return _changed("each declaration ends with ';'", ",", ";")
    if found == "=":
        value = re.match(r"\s*([^;\s]+)", place.after)
        words = f"an initial value is written @init({value[1] if value else '...'})"
        return _changed(words, f"={value[0]}", f"@init({value[1]})") if value else Hint(words)
    if found in ("init", "ref", "table", "fixed", "auto_dim"):
        return _changed(f"attributes begin with @: @{found}", found, f"@{found}")
    if found == ";" and before == name:
        return Hint(f"give it a type: {name}: f32[...];")
    if found in ("op", "assign", "loop", "return", "transfer", "branch") and not re.match(r"\s*[:(]", place.after):
        return Hint("statements belong in a block: block entry { ... }")
    return None


# --- in blocks --------------------------------------------------------------------------------------------------------


def _calls(place: HabitPlace) -> Hint | None:
    """Calls of blocks written like function calls of other languages."""
    if match := re.match(rf"({_NAME}(?:\s*,\s*{_NAME})*)\s*=\s*call\s+({_NAME}\s*\([^)]*\))", place.statement):
        return place.instead(f"call {match[2]} >> {match[1]};", "write  {}  with results that are declared")
    if place.word == "call" and place.found == "=":
        return Hint("arguments of a call are given by their positions")
    if place.word == "call" and place.found == ";" and re.fullmatch(rf"call\s+{_NAME}", place.before.strip()):
        return place.instead(f"{place.before.strip()}();")
    if place.word == "branch" and place.found == "(":
        return Hint(f"a block with parameters is called: call {place.before.split()[-1]}(...) >> y;")
    return None


def _in_block(place: HabitPlace) -> Hint | None:
    rules = (_calls, _control_flow, _assignment, _value_alone, _op_call, _other_statements, _operands)
    return next((found for rule in rules if (found := rule(place)) is not None), None)


def _control_flow(place: HabitPlace) -> Hint | None:
    word = place.word
    if word in ("if", "else", "elif", "switch", "match", "case"):
        return Hint(_BRANCH, f"there is no '{word}' statement")
    if word in ("while", "do", "for", "repeat"):
        return Hint(f"a loop has a number of iterations: {_LOOP}", f"there is no '{word}' statement")
    if word == "loop":
        words = f"write  {_LOOP}"
        pattern = rf"loop\s+({_NAME})\s*\(?\s*({_NAME})\s+in\s+(?:range\s*\(([^()]*)\)|([^\s()]+\.\.[^\s()]+))\s*\)?"
        match = re.fullmatch(pattern, place.statement)
        return Hint(Advice(words, Fix(_looped(match), place.statement)) if match else words)
    if word in ("break", "continue", "goto", "try", "raise", "throw", "pass", "del", "delete", "import", "def", "fn"):
        return Hint("a block consists of ops, loops and branches", f"there is no '{word}' statement")
    if word in ("print", "printf", "assert"):
        return Hint("look at values with 'openinfer step', or return and fetch them", f"there is no '{word}' statement")
    return None


def _looped(match: re.Match[str]) -> str:
    """The head of a loop, from its name, its index, and ``range(...)`` or ``a..b``."""
    name, index, given, bounds = match.groups()
    start, _, end = (part.strip() for part in (given or "").rpartition(","))
    return f"loop {name} ({index} in {bounds or f'{start or 0}..{end}'})"


def _assignment(place: HabitPlace) -> Hint | None:
    text = place.statement
    declared = re.match(rf"(let|var|val|const|auto|mut|{'|'.join(_DTYPE_NAMES)}|[Tt]ensor)\s+({_NAME})", text)
    if declared:
        name = declared.group(2)
        value = re.match(r"\s*=\s*(.*)", text[declared.end() :])
        return Hint(
            _written(place, name, value[1] if value else "", f"{name} = op name(...);  or  assign {name}: f32[...];"),
            f"there is no '{declared[1]}' here",
        )
    if match := re.match(rf"assign\s+({_NAME})\s*=\s*(.*)", text):
        return Hint(_written(place, match[1], match[2], f"{match[1]} = op name(...);"))
    if match := re.match(rf"(assign\s+({_NAME})\s*:[^=]*?)\s*=\s*(.*)", text):
        call = as_op(None, match[3])
        words = f"'assign' only declares; then  {call or 'op name(...)'} >> {match[2]};"
        new = f"{match[1]}; {call} >> {match[2]};"
        return Hint(Advice(words, *place.instead(new).fixes) if call else words)
    if match := re.match(rf"({_NAME})\s*(\+\+|--)|(\+\+|--)\s*({_NAME})", text):
        name, sign = (match[1], match[2]) if match[1] else (match[4], match[3])
        return place.instead(f"cache.{'increment' if sign == '++' else 'decrement'} {name};")
    if match := re.match(rf"({_NAME}(?:\[[^\]]*\])?)\s*([-+*/%@&|^])=\s*(.*)", text):
        return place.instead(_updated(match[1], match[2], match[3])) if match[3] else None
    if match := re.match(rf"({_NAME}\[[^\]]*\])\s*=\s*(.*)", text):
        call = as_op(None, match[2])
        return place.instead(f"{call} >> {match[1]};") if call else Hint(f"write  op name(...) >> {match[1]};")
    if match := re.match(rf"({_NAME}(?:\s*,\s*{_NAME})*)\s*(?::=|<-|=(?!\s*op\b))\s*(.*)", text):
        return Hint(_written(place, match[1], match[2], _RESULT))
    if match := re.match(rf"({_NAME}(?:\[[^\]]*\])?)\s*>>\s*({_NAME}(?:\[[^\]]*\])?)", text):
        return place.instead(f"transfer {match[1]} >> {match[2]};")
    return None


def _written(place: HabitPlace, target: str, value: str, otherwise: str) -> str:
    """Advice to write an assignment of another language as a statement; ``otherwise`` if it is unclear."""
    names = re.split(r"\s*,\s*", target)
    call = as_op(None, value)
    if call is not None and place.declared >= set(names):
        return place.instead(f"{call} >> {target};").advice
    statement = as_op(target, value)
    return f"write  {otherwise}" if statement is None else place.instead(statement).advice


def _updated(target: str, sign: str, value: str) -> str:
    if re.fullmatch(r"\d+", value) and sign in "+-":
        return f"cache.{'increment' if sign == '+' else 'decrement'} {value} {target};"
    return f"op {_OPERATORS[sign]}({target}, {value}) >> {target};"


def as_op(target: str | None, value: str) -> str | None:
    """A foreign expression as a statement, or as a call if there is no target; None if it is unclear."""
    value = value.strip()
    if match := re.fullmatch(r"-\s*([\w\[\], .]+)", value):
        found = f"neg({match[1]})"
    elif match := re.fullmatch(rf"(?:op\s+)?({_DOTTED})\s*\((.*)\)", value):
        found = _called(match[1], match[2])
    elif match := re.fullmatch(r"([\w\[\].]+)\s*(\*\*|[<>=!]=|[-+*/%@<>&|^])\s*([\w\[\].]+)", value):
        found = f"{_OPERATORS[match[2]]}({match[1]}, {match[3]})"
    elif re.fullmatch(r"[-+\d.e]+", value):
        return f"op fill({target}, value={value}) >> {target};" if target else None
    elif re.fullmatch(rf"{_NAME}(\[[^\]]*\])?", value):
        return f"transfer {value} >> {target};" if target else None
    else:
        return None
    return f"op {found}" if target is None else f"{target} = op {found};"


def _called(name: str, arguments: str) -> str:
    """A call without its package prefix; for a method call, the object becomes the first argument."""
    *path, last = re.split(r"\s*\.\s*", name)
    if path and path[0] not in _PACKAGES:
        arguments = ", ".join(filter(None, (".".join(path), arguments)))
    return f"{last}({arguments})"


def _value_alone(place: HabitPlace) -> Hint | None:
    """``relu(x);``, ``relu(x) >> y;``, ``x + x;`` and ``x + x >> y;``."""
    if re.match(r"(op|cache|return|yield|await|transfer|assign|branch|scope|dep|effect)\b", place.statement):
        return None
    value, _, target = (part.strip() for part in re.split(r"(>>|->|=>)", place.statement + ">>", maxsplit=1))
    call = as_op(None, value)
    target = target.removesuffix(">>").strip()
    if call is None:
        return None
    return place.instead(f"{call} >> {target};") if target else Hint(f"write  y = {call};  with the result's name")


def _op_call(place: HabitPlace) -> Hint | None:
    text, before, found = place.statement, place.before, place.found
    if not re.match(rf"(?:{_NAME}(?:\s*,\s*{_NAME})*\s*=\s*)?op\b", text):
        return None
    if match := re.match(rf"(.*?\bop\s+)({_NAME}(?:\s*\.\s*{_NAME})+)\s*\(", text):
        last = re.split(r"[.]", match[2])[-1].strip()
        return _changed(f"the name of an op has no dots: op {last}(...)", match[2], last)
    if (found in ("-", "=") and place.after.startswith(">")) or (found == ">" and before.rstrip().endswith(")")):
        arrow = found if found == ">" else f"{found}>"
        return _changed("a result is written with >>", arrow, ">>")
    if found == ";" and before.rstrip().endswith(")"):
        return Hint(f"name the result: {before.strip()} >> y;  or  y = {before.strip()};")
    if found == ">>" and before.count("(") > before.count(")"):
        return _changed("close the '(' first", f"{before[len(before.rstrip()) :]}>>", ") >>")
    if re.search(r">>\s*$", before):
        if found == "(":
            names = re.match(r"([^();\n]*)\)", place.after)
            words = "results are listed without parentheses: >> a, b;"
            return _changed(words, f"({names[0]}", names[1]) if names else Hint(words)
        if found == "assign":
            return Hint("declare it in a statement before, or let the op do it: h = op name(...);")
    if found == "op" or (found == "(" and re.search(rf"[(,=]\s*{_DOTTED}$", before)):
        return Hint("an op takes variables: give the inner result a name first, t = op name(...);")
    if found == "," and (opened := re.search(r"=\s*(\([^()]*)$", before)):
        rest = re.match(r"([^();\n]*)\)", place.after)
        words, start = "a list is written in square brackets: [0, 1]", opened[1]
        return _changed(words, f"{start},{rest[0]}", f"[{start[1:]},{rest[1]}]") if rest else Hint(words)
    return None


def _other_statements(place: HabitPlace) -> Hint | None:
    text = place.statement
    if re.match(r"return\b", text):
        return Hint("return names variables: y = op name(...); return y;")
    if match := re.match(rf"cache\s*\.\s*(increment|decrement)\s+({_NAME})\s+(\S+)", text):
        return place.instead(f"cache.{match[1]} {match[3]} {match[2]};", "the amount comes first: {}")
    if re.match(r"cache\s*\.", text):
        return Hint("there are cache.read, cache.write, cache.increment, cache.decrement and cache.reset")
    return None


def _operands(place: HabitPlace) -> Hint | None:
    before, found = place.before, place.found
    if "[" in before.rpartition("]")[2] and (found == ":" or (found == "." and before.endswith(".."))):
        return _sliced(place)
    if found == "." and re.search(rf"{_NAME}$", before):
        if re.match(r"T\b|mT\b", place.after):
            return Hint("write  t = op transpose(x, perm=[1, 0]);")
        return Hint("names have no dots, and variables no methods: y = op name(x);")
    if found == "*" and before.rstrip().endswith("*"):
        return Hint("write  y = op pow(a, b);")
    if found in ("<", ">", "=", "!", "&", "|") and re.search(r"[\w\])]\s*$", before):
        return Hint("values are compared by ops: c = op gt(a, b);")
    return None


def _sliced(place: HabitPlace) -> Hint:
    """Slices as in ``x[1:3]``, ``x[:, 0]`` and ``x[..., 0]``."""
    words = "a slice is written a..b, and a whole axis is left empty: x[, 0]"
    start, rest = place.before.rpartition("[")[2], re.match(r"[^\]\n]*", place.after)
    parts = (start + place.found + (rest[0] if rest else "")).split(",")
    if any(part.count(":") > 1 or "..." in part for part in parts):
        return Hint(words)  # neither strides nor ``...`` exist in the language
    new = [part.strip() if ":" not in part else re.sub(r"\s*:\s*", "..", part.strip()) for part in parts]
    changed = ", ".join("" if part == ".." else part for part in new)
    return _changed(words, f"[{','.join(parts)}]", f"[{changed}]")


_RULES: dict[str, Callable[[HabitPlace], Hint | None]] = {
    "": _at_top,
    "GRAPH": _at_top,
    "SIZES": _in_sizes,
    "MEMORY": _in_memory,
    "STATE": _in_memory,
}
