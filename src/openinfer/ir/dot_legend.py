"""The marks of a picture: how they look, and their entries in the legend."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from openinfer.ir.dot_style import DARK, GREY, KINDS, Look, markup

_FLOW = "#b4511f"
_DEP = "#a01c3c"
_CARRIED = "#0a6aa1"
_STATE = "#a14a7a"
_IN_A_ROW = 4


@dataclass(frozen=True)
class LegendMark:
    """A kind of line or shape: its look, its sample in the legend, and its meaning."""

    sample: str
    meaning: str
    color: str = DARK
    fill: str = ""
    look: Look = field(default_factory=dict, hash=False)

    def cells(self) -> str:
        """Its cells in the legend."""
        shade = f' BGCOLOR="{self.fill}" COLOR="{self.color}" BORDER="1"' if self.fill else ""
        shown = f'<FONT COLOR="{self.color}">{markup(self.sample)}</FONT>'
        return f'<TD{shade}>&#160;{shown}&#160;</TD><TD ALIGN="LEFT">{markup(self.meaning)}&#160;&#160;</TD>'


def _colored(color: str, **look: str) -> Look:
    return {"color": f'"{color}"', "fontcolor": f'"{color}"', **look}


VALUE = LegendMark("--->", "a value that is written or read")
ORDER = LegendMark("--->", "runs after", GREY, look={"color": f'"{GREY}"', "penwidth": "0.7", "arrowsize": "0.45"})
INDEX = LegendMark(
    "---o", "an index, a bound or an amount", look={"penwidth": "0.6", "arrowhead": "odot", "arrowsize": "0.5"}
)
BRANCH = LegendMark("- - >", "runs a block", _FLOW, look=_colored(_FLOW, style="dashed"))
HAND_OVER = LegendMark(". . . >", "yield wakes await", _FLOW, look=_colored(_FLOW, style="dotted", penwidth="1.6"))
DEP = LegendMark("===>", "dep: after and before", _DEP, look=_colored(_DEP, style="bold", weight="0"))
CARRIED = LegendMark(
    "- - >",
    "carried to the next iteration",
    _CARRIED,
    look=_colored(_CARRIED, style="dashed", penwidth="1.3", constraint="false"),
)
STATE = LegendMark(
    "- - >", "kept for the next step", _STATE, look=_colored(_STATE, style="dashed", penwidth="1.3", constraint="false")
)
START = LegendMark("\N{BLACK CIRCLE}", "a block begins")
OP = LegendMark("op", "computes or moves values", fill="#ffffff")
CONTROL = LegendMark("branch", "decides what runs, or hands values over", fill="#e6e9ee")
FOLDED = LegendMark("in a node", "a weight that it reads", KINDS["constant"][1], KINDS["constant"][0])
COLLAPSED = LegendMark("double", "a body, drawn as one shape", "#7b8794", "#f3f5f7")
ELSEWHERE = LegendMark("[ - - - ]", "dashed outline: written in another column")
_KINDS = {
    "dynamic": "given for each step",
    "volatile": "lasts for a step",
    "constant": "never changes",
    "persistent": "kept between steps",
    "temporary": "a value of a block",
}
MEMORY = {name: LegendMark(name, _KINDS[name], line, fill) for name, (fill, line, _) in KINDS.items()}
_ALL = (
    *MEMORY.values(),
    *(FOLDED, ELSEWHERE, OP, CONTROL, COLLAPSED, START),
    *(VALUE, ORDER, INDEX, CARRIED, STATE, BRANCH, HAND_OVER, DEP),
)


def legend(used: Iterable[LegendMark]) -> str:
    """The label of a picture: the meanings of the marks it uses."""
    wanted = set(used)
    cells = [mark.cells() for mark in _ALL if mark in wanted]
    rows = ["".join(cells[start : start + _IN_A_ROW]) for start in range(0, len(cells), _IN_A_ROW)]
    table = "".join(f"<TR>{row}</TR>" for row in rows) or "<TR><TD></TD></TR>"
    return f'graph [label=<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3" CELLPADDING="1">{table}</TABLE>>];'
