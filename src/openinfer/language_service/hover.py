"""Hover texts for names, in Markdown: types, where values come from, how to use an op."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from openinfer.check.bound import BoundVar, FromCaller, FromInit, FromModel, FromPattern
from openinfer.errors import Span, counted
from openinfer.ir.graph import Op
from openinfer.ir.text import block_head, node_head
from openinfer.language_service.analysis import TextAnalysis
from openinfer.language_service.symbols import Occurrence, SourceSymbol, SymbolKind, SymbolRole
from openinfer.language_service.text import TextRange
from openinfer.language_service.words import ATTRIBUTES, CONSTRAINTS, KEYWORDS, SECTIONS
from openinfer.ops import OPS
from openinfer.ops.arguments import default_text
from openinfer.ops.catalogue import dtypes_text, op_markdown


@dataclass(frozen=True)
class HoverText:
    """Markdown about the text in a range."""

    markdown: str
    range: TextRange


def hover(analysis: TextAnalysis, offset: int) -> HoverText | None:
    """The hover text for the word at an offset, or None."""
    found = analysis.index.at(offset)
    if found is not None:
        text = _ABOUT[found.symbol.kind](analysis, found)
        return HoverText(text, found.range) if text else None
    for token in analysis.recovered.tokens:
        if token.start_pos <= offset < token.end_pos:
            word = "".join(token.value.split())
            about = SECTIONS.get(word) or KEYWORDS.get(word)
            return HoverText(about, TextRange(token.start_pos, token.end_pos)) if about else None
    return None


def described(analysis: TextAnalysis, symbol: SourceSymbol) -> str:
    """A name in one line: its type, or what it is."""
    if symbol.kind is SymbolKind.SIZE:
        return _size_value(analysis, symbol.name)
    types = analysis.types_of(symbol)
    what = symbol.detail if symbol.kind is SymbolKind.VARIABLE else symbol.kind.value
    return f"{types[0]}  {what}" if types else what


def _about_variable(analysis: TextAnalysis, found: Occurrence) -> str:
    symbol = found.symbol
    types = analysis.types_of(symbol) or ["?"]
    kind = symbol.detail or symbol.kind.value
    lines = [_code(*(f"{kind} {symbol.name}: {one}" for one in types))]
    variable = None if analysis.known is None else analysis.known.vars.get(symbol.name)
    if variable is not None and not symbol.block:
        lines += _origin(analysis, variable)
    places = analysis.index.of(symbol)
    writes = sum(one.role is SymbolRole.WRITE for one in places)
    reads = sum(one.role is SymbolRole.READ for one in places)
    lines.append(f"Written {_times(writes)}, read {_times(reads)}.")
    return "\n\n".join(lines)


def _times(count: int) -> str:
    return {0: "nowhere", 1: "in 1 place"}.get(count, f"in {count} places")


def _origin(analysis: TextAnalysis, variable: BoundVar) -> list[str]:
    """Where the value of a variable comes from."""
    match variable.origin:
        case FromModel(name):
            entry = None if analysis.model is None else analysis.model.tensors.get(name)
            size = f", {counted(entry.nbytes, 'byte')}" if entry is not None else ""
            value = analysis.known.constants.get(variable.name) if analysis.known is not None else None
            return [
                f"From the model: {_quoted(name)}{size}." + (f" Its value is {value}." if value is not None else "")
            ]
        case FromPattern(pattern):
            return [f"Entries from the model: {_quoted(pattern)}."]
        case FromCaller():
            return ["The caller inserts it before each step."]
        case FromInit(value):
            return [f"Begins as {value}."] if value is not None else []


def _about_size(analysis: TextAnalysis, found: Occurrence) -> str:
    return _code(f"size {found.symbol.name} {_size_value(analysis, found.symbol.name)}")


def _size_value(analysis: TextAnalysis, name: str) -> str:
    known = analysis.known
    if known is not None and name in known.sizes:
        return f":= {known.sizes[name]}"
    if known is not None and name in known.bounds:
        return f"<= {known.bounds[name]}"
    declared = analysis.graph.sizes.get(name)
    return f"{declared.relation} {declared.value}" if declared is not None else "(from the model or the caller)"


def _about_index(_analysis: TextAnalysis, found: Occurrence) -> str:
    where = f" of {found.symbol.detail}" if found.symbol.detail else ""
    return _code(f"index {found.symbol.name}{where}")


def _about_block(analysis: TextAnalysis, found: Occurrence) -> str:
    block = analysis.graph.blocks.get(found.symbol.name)
    if block is None:
        return _code(f"block {found.symbol.name}")
    return f"{_code(block_head(block))}\n\n{counted(len(block.nodes), 'node')}."


def _about_loop(analysis: TextAnalysis, found: Occurrence) -> str:
    node = analysis.node_at(found.range.start)
    return _code(node_head(node)) if node is not None else _code(f"loop {found.symbol.name}")


def _about_op(analysis: TextAnalysis, found: Occurrence) -> str:
    record = OPS.get(found.symbol.name)
    if record is None:
        return ""
    here = _here(analysis, found.range.start)
    return "\n\n".join((*here, op_markdown(record)))


def _here(analysis: TextAnalysis, offset: int) -> list[str]:
    """The types of the operands and results of the op at an offset."""
    bound = analysis.bound
    nodes = [node for start, node in analysis.nodes_with(Op) if start <= offset] if bound is not None else []
    node = nodes[-1] if nodes else None
    if bound is None or node is None or not isinstance(node.span, Span) or offset > node.span.end:
        return []
    copies = [node.index, *(copy for copy, origin in bound.origins.items() if origin == node.index)]
    calls = [bound.ops[one].call for one in copies if one in bound.ops]
    lines = []
    for call in calls:
        if call is not None:
            given = ", ".join("-" if one is None else str(one) for one in call.inputs)
            lines.append(f"({given}) -> {', '.join(map(str, call.outputs))}")
    return [_code(*dict.fromkeys(lines))] if lines else []


def _about_parameter(_analysis: TextAnalysis, found: Occurrence) -> str:
    record = OPS.get(found.symbol.detail)
    if record is None:
        return ""
    param = record.param(found.symbol.name)
    if param is not None:
        choices = f"\n\nOne of {', '.join(f'`{one}`' for one in param.choices)}." if param.choices else ""
        return f"{_code(f'{param.name}: {param.kind}{default_text(param)}')}\n\n{param.doc}{choices}"
    spec = next((one for one in record.signature.inputs if one.name == found.symbol.name), None)
    if spec is None:
        return ""
    return _code(f"input {spec.name} of {record.name}: {dtypes_text(record.signature.allowed(spec.type))}")


def _about_entry(analysis: TextAnalysis, found: Occurrence) -> str:
    model, name = analysis.model, found.symbol.name
    if model is None:
        return "A name in the model; no model is known here."
    if name in model.tensors:
        info = model.tensors[name]
        size = counted(info.nbytes, "byte")
        return f"{_code(f'{name}: {info.type_text}')}\n\nIn the model {_quoted(model.path)}, {size}."
    if name in model.metadata_info:
        return (
            f"{_code(f'{name}: {model.metadata_info[name].type_name}')}\n\nMetadata of the model {_quoted(model.path)}."
        )
    return f"Names in the model {_quoted(model.path)}." if "{" in name else f"The model has no {_quoted(name)}."


def _about_word(table: dict[str, str]) -> Callable[[TextAnalysis, Occurrence], str]:
    return lambda _analysis, found: table.get(found.symbol.name, "")


def _code(*lines: str) -> str:
    body = "\n".join(lines)
    fence = _fence(body, 3)
    return f"{fence}oig\n{body}\n{fence}"


def _quoted(text: object) -> str:
    """Text from a graph or a file as inline code, whatever it contains: none of it becomes a link or an image."""
    line = " ".join(str(text).split())
    fence = _fence(line, 1)
    return f"{fence}{line}{fence}" if len(fence) == 1 else f"{fence} {line} {fence}"


def _fence(text: str, least: int) -> str:
    """Backticks that nothing in a text can close."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


_ABOUT: dict[SymbolKind, Callable[[TextAnalysis, Occurrence], str]] = {
    SymbolKind.SIZE: _about_size,
    SymbolKind.VARIABLE: _about_variable,
    SymbolKind.TEMPORARY: _about_variable,
    SymbolKind.INDEX: _about_index,
    SymbolKind.BLOCK: _about_block,
    SymbolKind.LOOP: _about_loop,
    SymbolKind.OP: _about_op,
    SymbolKind.PARAMETER: _about_parameter,
    SymbolKind.ATTRIBUTE: _about_word(ATTRIBUTES),
    SymbolKind.CONSTRAINT: _about_word(CONSTRAINTS),
    SymbolKind.ENTRY: _about_entry,
    SymbolKind.UNKNOWN: lambda _analysis, _found: "",
}
