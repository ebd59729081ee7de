"""Looks and labels of pictures: DOT strings, colours, shapes. Knows how things look, not where they are placed.

Names are never DOT identifiers: they only appear in labels and tooltips, escaped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openinfer.errors import counted, printable
from openinfer.ir.expr import ONE
from openinfer.ir.graph import (
    Assign,
    Await,
    Barrier,
    Block,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    Constraints,
    Dep,
    Node,
    Op,
    Return,
    VarDecl,
    Yield,
)
from openinfer.ir.rules import node_name
from openinfer.ir.text import node_head, param_text, type_text, var_text

Look = dict[str, str]
"""Attributes of a node or edge, in DOT syntax."""

LINE_WIDTH = 40
MAX_LINES = 3
MAX_TOOLTIP = 400

# Tints of the Okabe-Ito palette, which is safe for all kinds of colour vision; shapes differ as well.
KINDS = {
    "dynamic": ("#d6ecfa", "#0a6aa1", {"shape": "note", "style": '"filled"'}),
    "volatile": ("#fdecc8", "#a86f00", {"shape": "box", "style": '"rounded,filled"'}),
    "constant": ("#d3eee5", "#00734f", {"shape": "box", "style": '"filled"'}),
    "persistent": ("#f5e0ec", "#a14a7a", {"shape": "cylinder", "style": '"filled"'}),
    "temporary": ("#ffffff", "#767676", {"shape": "ellipse", "style": '"filled"', "margin": '"0.02,0.01"'}),
}
_FONT = "Helvetica,Arial,sans-serif"
DARK = "#3c4654"
GREY = "#8a8a8a"

START: Look = {
    "shape": "circle",
    "label": '""',
    "style": '"filled"',
    "fillcolor": f'"{DARK}"',
    "width": "0.12",
    "height": "0.12",
}
COLUMN_MARK: Look = {"shape": "plaintext", "margin": '"0.02,0.02"', "height": "0.2"}
EMPTY: Look = {"shape": "plaintext", "label": f'<<FONT COLOR="{GREY}"><I>empty</I></FONT>>'}
_COMPUTE: Look = {
    "shape": "box",
    "style": '"rounded,filled"',
    "fillcolor": '"#ffffff"',
    "color": f'"{DARK}"',
    "penwidth": "1.6",
}
_COLLAPSED: Look = {
    "shape": "box",
    "style": '"rounded,filled"',
    "fillcolor": '"#f3f5f7"',
    "color": '"#7b8794"',
    "peripheries": "2",
}
_CONTROL: Look = {"shape": "box", "style": '"rounded,filled"', "fillcolor": '"#e6e9ee"', "color": f'"{DARK}"'}
_BARRIER: Look = {
    "shape": "box",
    "style": '"filled"',
    "fillcolor": f'"{DARK}"',
    "color": f'"{DARK}"',
    "width": "3",
    "height": "0.2",
}

BLOCK_BOX = 'style="rounded", color="#5b6470", penwidth=1.4, margin=14, fontsize=13'
CONSUMER_BOX = f"{BLOCK_BOX}, labeljust=r"
LOOP_BOX = 'style="rounded,filled", color="#7b8794", fillcolor="#f3f5f7", penwidth=1, margin=12, fontsize=11'
SCOPE_BOX = 'style="rounded,dashed", color="#7b8794", penwidth=1, margin=12, fontsize=11'

COLUMN_BOX = 'style="invis", margin=4'
HEADER = (
    "graph [compound=true, newrank=true, nodesep=0.22, ranksep=0.24, pad=0.2, labelloc=t, labeljust=l];",
    f'graph [fontname="{_FONT}", fontsize=10];',
    f'node [fontname="{_FONT}", fontsize=11, margin="0.12,0.06", height=0.3, width=0.5, penwidth=1];',
    f'edge [fontname="{_FONT}", fontsize=9, color="{DARK}", fontcolor="{DARK}", arrowsize=0.6, penwidth=1];',
)


# --- text -----------------------------------------------------------------------------------------------------------


_BACKSLASH, _LOOKALIKE = "\\", "\u29f5"


def markup(text: str) -> str:
    r"""Text escaped for an HTML-like label, in ASCII.

    Graphviz interprets escapes such as ``\N`` after it has decoded entities, some versions twice. A backslash followed
    by a zero-width space is an escape in none of them.

    >>> markup("a<b"), markup("\\N")
    ('a&#60;b', '&#92;&#8203;N')
    """
    return "".join(map(_entity, printable(text)))


def _entity(character: str) -> str:
    if character == _BACKSLASH:
        return "&#92;&#8203;"
    return character if character.isascii() and character not in "&<>\"'" else f"&#{ord(character)};"


def string(text: str) -> str:
    r"""A quoted string, for tooltips. How many levels of backslashes Graphviz removes there depends on its version.

    So a backslash becomes U+29F5, which looks the same. Entities work, except beyond U+FFFF.

    >>> string('a"b'), string("\\N")
    ('"a&#34;b"', '"&#10741;N"')
    """
    short = "".join(c if ord(c) <= 0xFFFF else c.encode("unicode_escape").decode("ascii") for c in printable(text))
    return f'"{markup(short.replace(_BACKSLASH, _LOOKALIKE))}"'


def cropped(text: str, width: int = LINE_WIDTH) -> str:
    """A text cropped to a width.

    >>> cropped("a name that is much too long", 12)
    'a name th...'
    """
    return text if len(text) <= width else text[: width - 3] + "..."


def wrapped(items: Sequence[str], separator: str = ",") -> list[str]:
    """Items on a few short lines; those that do not fit are counted."""
    lines = [""]
    for position, item in enumerate(items):
        word = cropped(item) + (separator if position + 1 < len(items) else "")
        if lines[-1] and len(lines[-1]) + 1 + len(word) > LINE_WIDTH:
            if len(lines) == MAX_LINES:
                return [*lines, f"... and {len(items) - position} more"]
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [line for line in lines if line]


def label(title: str, *small: str, weights: Sequence[str] = ()) -> str:
    """A bold line, small lines below it, and weights on their background colour."""
    rows = [f"<TR><TD><B>{markup(cropped(title))}</B></TD></TR>"]
    rows += [f'<TR><TD><FONT POINT-SIZE="9" COLOR="#444444">{markup(line)}</FONT></TD></TR>' for line in small]
    fill, line_color, _ = KINDS["constant"]
    cell = f'<TD BGCOLOR="{fill}" BORDER="1" COLOR="{line_color}" CELLPADDING="1">'
    rows += [f'<TR>{cell}<FONT POINT-SIZE="9">{markup(cropped(line))}</FONT></TD></TR>' for line in weights]
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">{"".join(rows)}</TABLE>>'


def attributes(look: Look) -> str:
    """An attribute list."""
    return f"[{', '.join(f'{name}={value}' for name, value in look.items())}]"


@dataclass
class Cluster:
    """A box with a title, and the statements and boxes inside it."""

    id: str
    title: str
    style: str
    members: list["str | Cluster"] = field(default_factory=list)

    def add(self, name: str, look: Look) -> None:
        """Add a node to the box."""
        self.members.append(f"{name} {attributes(look)};")

    def inside(self, name: str, title: str, style: str) -> "Cluster":
        """Add a box to the box."""
        inner = Cluster(name, title, style)
        self.members.append(inner)
        return inner

    def lines(self, indent: str) -> Iterator[str]:
        """The box as DOT text."""
        yield f"{indent}subgraph {self.id} {{"
        inner = indent + "    "
        yield f"{inner}graph [label=<{self.title}>, {self.style}];"
        for member in self.members:
            if isinstance(member, Cluster):
                yield from member.lines(inner)
            else:
                yield inner + member
        yield f"{indent}}}"


# --- looks ----------------------------------------------------------------------------------------------------------


def variable_look(name: str, declared: VarDecl | None, temporary: Assign | None, bound_type: str = "") -> Look:
    """The look of a variable; types found by binding take precedence over declared ones."""
    if declared is not None:
        indices = f"({', '.join(declared.table_indices)})" if declared.table_indices else ""
        shown = cropped(bound_type or type_text(declared.dtype.name, declared.dims))
        more = wrapped(_extras(declared), "")
        return _shape(declared.kind.value, label(declared.name + indices, shown, *more), var_text(declared))
    if bound_type:
        return _shape("temporary", label(name, cropped(bound_type)), f"{name}: {bound_type}")
    if temporary is None or temporary.dtype is None:
        return _shape("temporary", label(name), name)
    shown = type_text(temporary.dtype.name, temporary.dims or ())
    return _shape("temporary", label(name, cropped(shown)), f"assign {name}: {shown};")


def _extras(declared: VarDecl) -> list[str]:
    """The attributes of a declaration, as in its text after the type."""
    plain = VarDecl(declared.name, declared.kind, declared.dtype, declared.dims, table_indices=declared.table_indices)
    rest = var_text(declared)[len(var_text(plain)) - 1 :].removesuffix(";").strip()
    return [f"@{part}" for part in rest.removeprefix("@").split(" @")] if rest else []


def from_elsewhere(look: Look) -> Look:
    """The look of a variable whose value was written in an earlier column."""
    return look | {"style": f'"{look["style"].strip(chr(34))},dashed"'}


def collapsed_look(title: str, count: int, weights: int) -> Look:
    """The look of a loop, scope or block whose body is drawn as one shape."""
    folded = [counted(weights, "weight")] if weights else []
    text = label(title, counted(count, "node"), weights=folded)
    return {"label": text, **_COLLAPSED, "tooltip": string(cropped(title, MAX_TOOLTIP))}


def column_look(number: int, count: int) -> Look:
    """The mark above a column."""
    goes_on = "" if number == 1 else f", goes on from column {number - 1}"
    text = markup(f"column {number} of {count}{goes_on}")
    return {"label": f'<<FONT COLOR="{GREY}" POINT-SIZE="9"><I>{text}</I></FONT>>', **COLUMN_MARK}


def model_tensor_look(text: str) -> Look:
    """The look of a tensor that is referred to by its name in the model."""
    return _shape("constant", label(text), text)


def _shape(kind: str, text: str, tooltip: str) -> Look:
    fill, line, shape = KINDS[kind]
    colors = {"fillcolor": f'"{fill}"', "color": f'"{line}"'}
    return {"label": text, **shape, **colors, "tooltip": string(cropped(tooltip, MAX_TOOLTIP))}


def node_look(node: Node, weights: Sequence[str] = ()) -> Look:
    """The look of a node that is neither a box nor a variable, with the weights folded into it."""
    small: Sequence[str] = ()
    look = _COMPUTE
    match node.kind:
        case Op(_, _, attrs):
            small = [f"{name}={value}" for name, value in attrs]
        case CacheIncrement(_, amount) | CacheDecrement(_, amount):
            small = [] if amount == ONE else [str(amount)]
        case Branch(cond):
            small, look = (
                [] if cond is None else [cond],
                {**_CONTROL, "shape": "hexagon", "style": '"filled"', "margin": '"0.02,0.03"'},
            )
        case BlockCall(block, args):
            small, look = [block, *map(str, args)], _CONTROL
        case Return(variables) | Yield(variables) | Await(variables):
            small, look = variables, _CONTROL
        case Dep(after, before):
            small, look = [f"after({after})", f"before({before})"], _CONTROL
        case Barrier():
            tooltip = string(node_head(node))
            return {"label": '<<FONT COLOR="#ffffff">barrier</FONT>>', **_BARRIER, "tooltip": tooltip}
    title = node_name(node) or type(node.kind).__name__.lower()
    lines = [*wrapped(small), *_constraints(node.constraints)]
    return {
        "label": label(title, *lines, weights=weights),
        **look,
        "tooltip": string(cropped(node_head(node), MAX_TOOLTIP)),
    }


def block_title(block: Block) -> str:
    """The title of a block's box."""
    lines = [f"<B>block {markup(cropped(block.name))}</B>"]
    small = [*wrapped(list(map(param_text, block.params or ()))), *_constraints(block.constraints)]
    lines += [f'<FONT POINT-SIZE="9">{markup(line)}</FONT>' for line in small]
    return lines[0] if len(lines) == 1 else "".join(f'{line}<BR ALIGN="LEFT"/>' for line in lines)


def _constraints(constraints: Constraints) -> list[str]:
    lines = wrapped([f"{key} = {value}" for key, value in constraints.items()])
    return [f"with {lines[0]}", *lines[1:]] if lines else []
