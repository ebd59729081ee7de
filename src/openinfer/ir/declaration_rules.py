"""Validates declarations before any model is known: sizes, attributes, tables."""

import re
from collections.abc import Iterator

from openinfer.errors import Advice, Code, Diagnostic, Fix, GraphPlace, counted, nearest
from openinfer.ir.advice import VARYING
from openinfer.ir.expr import Expr, constant
from openinfer.ir.graph import Graph, MemoryKind, VarDecl
from openinfer.ir.rules import dimension_problem, sizes_on_cycles

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def declaration_problems(graph: Graph, *, strict: bool) -> list[Diagnostic]:
    """The problems of a graph's sizes and variables; in strict mode, unknown attributes are problems too."""
    return _Declarations(graph, strict=strict).run()


def dimension_problems(expr: Expr, span: GraphPlace | None) -> Iterator[Diagnostic]:
    """The problems of a dimension."""
    problem = dimension_problem(expr)
    if problem is not None:
        advice = VARYING if constant(expr) == -1 else None
        yield Diagnostic(Code.BAD_SHAPE, f"'{expr}' cannot be a size: {problem}", span, advice)


class _Declarations:
    def __init__(self, graph: Graph, *, strict: bool) -> None:
        self.graph = graph
        self.strict = strict
        self.found: list[Diagnostic] = []

    def run(self) -> list[Diagnostic]:
        self._sizes()
        for variable in self.graph.vars.values():
            self._declaration(variable)
        return self.found

    def _report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, span, advice))

    def _sizes(self) -> None:
        cyclic = sizes_on_cycles(self.graph.sizes)
        for size in self.graph.sizes.values():
            self.found += dimension_problems(size.value, size.span)
            if size.name in cyclic:
                self._report(Code.BAD_SHAPE, f"the size {size.name!r} depends on itself", size.span)

    def _declaration(self, variable: VarDecl) -> None:
        name, kind = variable.name, variable.kind
        for dim in variable.dims:
            self.found += dimension_problems(dim, variable.span)
        if self.strict:
            for attribute in variable.attrs:
                known = ("init", "ref", "pattern", "table", "auto_dim", "fixed")
                advice = nearest(attribute.name, known)
                message = f"the attribute '@{attribute.name}' of {name!r} is unknown"
                self._report(Code.UNKNOWN_ATTRIBUTE, message, variable.span, advice)
        for used, attribute_name, allowed in (
            (variable.table, "@table", (MemoryKind.PERSISTENT,)),
            (variable.auto_dim, "@auto_dim", (MemoryKind.PERSISTENT,)),
            (variable.pattern is not None, "@pattern", (MemoryKind.VOLATILE, MemoryKind.CONSTANT)),
            (variable.init is not None, "@init", tuple(MemoryKind)[1:]),
            (variable.ref_name is not None, "@ref", tuple(MemoryKind)[1:]),
        ):
            if used and kind not in allowed:
                message = f"{attribute_name} belongs to {' and '.join(allowed)} memory, and {name!r} is {kind}"
                self._report(Code.WRONG_SECTION, message, variable.span)
        self._table_shape(variable)

    def _table_shape(self, variable: VarDecl) -> None:
        name, indices = variable.name, variable.table_indices
        marks = variable.table or bool(variable.auto_dim) or variable.pattern is not None
        if indices and not marks:
            message = f"{name!r} has indices, but nothing says what they choose"
            advice = "add @table or @auto_dim(...) in persistent memory, @pattern(...) in volatile or constant"
            self._report(Code.WRONG_SECTION, message, variable.span, advice)
        if (marks or variable.fixed) and not indices:
            message = f"{name!r} is declared as a table, but without indices"
            declared = f"{name}({', '.join(_indices_named(variable)) or 'i'})"
            advice = Advice(f"write {declared}: ...", Fix(declared, name))
            self._report(Code.WRONG_SECTION, message, variable.span, advice)
        elif variable.fixed and not (variable.table or variable.auto_dim):
            message = "@fixed bounds the indices of @table and @auto_dim"
            self._report(Code.WRONG_SECTION, message, variable.span)
        named = [("@auto_dim", index) for index in variable.auto_dim] + [
            ("@fixed", index) for index, _ in variable.fixed
        ]
        for index, bound in variable.fixed:
            if (constant(bound) or 0) < 0:
                message = f"@fixed gives the index {index!r} of {name!r} a negative bound"
                self._report(Code.BAD_ATTRIBUTE, message, variable.span)
        if variable.pattern is not None:
            used = PLACEHOLDER.findall(variable.pattern)
            if re.search(r"[{}]", PLACEHOLDER.sub("", variable.pattern)):
                message = f"the pattern of {name!r} has a brace that belongs to no index"
                self._report(Code.UNKNOWN_INDEX, message, variable.span)
            named += [("@pattern", index) for index in used]
            for index in indices:
                if index not in used:
                    message = f"the pattern of {name!r} does not use the index {index!r}"
                    self._report(Code.UNKNOWN_INDEX, message, variable.span, f"put {{{index}}} into it")
        for attribute, index in named:
            if indices and index not in indices:
                message = f"{attribute} names {index!r}, which is not an index of {name!r}"
                self._report(Code.UNKNOWN_INDEX, message, variable.span, nearest(index, indices))
        if variable.auto_dim:
            self._auto_dim_shape(variable)

    def _auto_dim_shape(self, variable: VarDecl) -> None:
        if len(set(variable.auto_dim)) < len(variable.auto_dim):
            self._report(Code.REPEATED, f"@auto_dim of {variable.name!r} names an index twice", variable.span)
        if len(variable.auto_dim) > len(variable.dims):
            few = f"{counted(len(variable.dims), 'dimension')}, too few for {counted(len(variable.auto_dim), 'index')}"
            message = f"{variable.name!r} has {few}"
            self._report(Code.WRONG_SECTION, message, variable.span)
        rest = [index for index in variable.table_indices if index not in variable.auto_dim]
        if rest and not variable.table:
            message = (
                f"the index {rest[0]!r} of {variable.name!r} is not a dimension, so the variable must be a @table too"
            )
            self._report(Code.WRONG_SECTION, message, variable.span)


def _indices_named(variable: VarDecl) -> dict[str, None]:
    """The indices that a variable's attributes mention."""
    pattern = PLACEHOLDER.findall(variable.pattern or "")
    return dict.fromkeys([*pattern, *variable.auto_dim, *(index for index, _ in variable.fixed)])
