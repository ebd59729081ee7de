"""Every help line that the sources can give about a text, found in the sources themselves.

A help line is whatever is given to a parameter called ``advice``, ``help`` or ``words``, assigned to such a name, or
returned by a function that is called there. What a line fills in becomes ``{}``.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path("src/openinfer")
FOLDERS = ("errors", "lang", "check", "ir", "language_service", "ops", "dtypes")
_NAMES = ("advice", "help", "words")
_Function = ast.FunctionDef
_SHORTEST = 3


@cache
def _modules() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for folder in FOLDERS for path in sorted((PACKAGE / folder).rglob("*.py"))]


@cache
def _functions() -> dict[str, list[_Function]]:
    found: dict[str, list[_Function]] = {}
    for module in _modules():
        for node in ast.walk(module):
            if isinstance(node, _Function):
                found.setdefault(node.name, []).append(node)
    return found


@cache
def _constants() -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for module in _modules():
        for node in module.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
    return found


@cache
def _positions() -> dict[str, int]:
    """Where each function takes a help line; classes by their constructors or their first field."""
    found = {"Advice": 0, "Hint": 0, "Diagnostic": 3}
    for module in _modules():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                found |= _own_positions(node.name, [one for one in node.body if isinstance(one, _Function)])
    for name, functions in _functions().items():
        if name != "__init__":
            found |= _own_positions(name, functions, "")
    return found


def _own_positions(name: str, functions: list[_Function], method: str = "__init__") -> dict[str, int]:
    for function in functions:
        given = [one.arg for one in function.args.args if one.arg not in ("self", "cls")]
        named = [one for one in given if one in _NAMES]
        if named and method in ("", function.name):
            return {name: given.index(named[0])}
    return {}


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


class _Lines:
    """Follows expressions to the texts in them."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._done: set[int] = set()

    def add(self, given: ast.expr | None, function: _Function | None) -> None:
        match given:
            case None:
                return
            case ast.JoinedStr(values):
                parts = (str(one.value) if isinstance(one, ast.Constant) else "{}" for one in values)
                self.found.add("".join(parts))
            case ast.Constant(str() as text):
                self.found.add(text)
            case ast.IfExp(_, body, orelse):
                self.add(body, function)
                self.add(orelse, function)
            case ast.BoolOp(_, values):
                for one in values:
                    self.add(one, function)
            case ast.BinOp(left, _, right):
                self.add(left, function)
                self.add(right, function)
            case ast.Dict(_, values):
                for one in values:
                    self.add(one, function)
            case ast.Name(name):
                self._name(name, function)
            case ast.Call():
                self._call(given, function)

    def _name(self, name: str, function: _Function | None) -> None:
        local = [*_assigned(name, function)] if function is not None else []
        shared = _constants().get(name)
        for one in local or ([] if shared is None else [shared]):
            if id(one) not in self._done:
                self._done.add(id(one))
                self.add(one, function)

    def _call(self, call: ast.Call, function: _Function | None) -> None:
        name = _called(call)
        if name in ("Advice", "Hint"):
            self.add(call.args[0], function)
        elif name == "get" and isinstance(call.func, ast.Attribute):
            self.add(call.func.value, function)
            for one in call.args[1:]:
                self.add(one, function)
        for own in _functions().get(name, ()):
            if id(own) not in self._done and own.name not in ("usage", "get"):
                self._done.add(id(own))
                for node in ast.walk(own):
                    if isinstance(node, ast.Return):
                        self.add(node.value, own)


def _assigned(name: str, function: _Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
                yield from (value for one, value in pairs if isinstance(one, ast.Name) and one.id == name)


def _given(node: ast.AST) -> Iterator[ast.expr]:
    """The help lines in one node."""
    if isinstance(node, ast.Call):
        place = _positions().get(_called(node))
        if place is not None and place < len(node.args):
            yield node.args[place]
        yield from (one.value for one in node.keywords if one.arg in _NAMES)
    if isinstance(node, _Function):
        for name in _NAMES:
            yield from _assigned(name, node)


def help_lines() -> set[str]:
    """The help lines, with ``{}`` where something is filled in."""
    lines = _Lines()
    for functions in _functions().values():
        for function in functions:
            for node in ast.walk(function):
                for one in _given(node):
                    lines.add(one, function)
    for value in _constants().values():
        if isinstance(value, ast.Call) and _called(value) == "Advice":
            lines.add(value, None)
    return {line for line in lines.found if len(re.sub(r"[^a-zA-Z]", "", line.replace("{}", ""))) >= _SHORTEST}


def fits(line: str, said: str) -> bool:
    """Whether a help line that was given is one of the sources, perhaps among others."""
    return re.search(".+?".join(map(re.escape, line.split("{}"))), said, re.DOTALL) is not None
