"""Pieces of code that know how tightly they bind, so that parentheses stand only where they say something.

They stand where an operator binds more tightly than what is inside, where numbers are added up or multiplied in
another order than from the left, and where compilers ask for them since many readers do not know the order: logical
and within or, and all but plain operands within bitwise operators and comparisons.
"""

from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """How tightly an expression binds, the loosest first."""

    CHOICE = 0
    OR = 1
    AND = 2
    BITS = 3
    COMPARISON = 4
    """Also that of a logical not, which compilers warn about inside of a comparison."""
    SUM = 5
    PRODUCT = 6
    UNARY = 7
    ATOM = 8


_RANKS = {
    **dict.fromkeys(("*", "/", "%"), Rank.PRODUCT),
    **dict.fromkeys(("+", "-"), Rank.SUM),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), Rank.COMPARISON),
    **dict.fromkeys(("&", "|", "^"), Rank.BITS),
    "&&": Rank.AND,
    "||": Rank.OR,
}
_LEAST = {Rank.COMPARISON: Rank.SUM, Rank.BITS: Rank.UNARY, Rank.OR: Rank.BITS}
"""The ranks that operands have without parentheses, where it is not the operator's own."""


@dataclass(frozen=True)
class ExprText:
    """An expression as text, and how tightly it binds."""

    text: str
    rank: Rank = Rank.ATOM

    def inside(self, least: Rank) -> str:
        """The text as an operand: in parentheses if it binds more loosely than this.

        >>> ExprText("a + b", Rank.SUM).inside(Rank.PRODUCT), ExprText("a + b", Rank.SUM).inside(Rank.SUM)
        ('(a + b)', 'a + b')
        """
        return self.text if self.rank >= least else f"({self.text})"

    @property
    def atom(self) -> str:
        """The text as an operand of anything."""
        return self.inside(Rank.ATOM)


def joined(left: ExprText, sign: str, right: ExprText) -> ExprText:
    """Two operands and the operator between them.

    >>> a, b, c = map(ExprText, "abc")
    >>> joined(joined(a, "+", b), "+", c).text, joined(a, "+", joined(b, "+", c)).text
    ('a + b + c', 'a + (b + c)')
    >>> joined(joined(a, "&&", b), "||", c).text, joined(a, "&&", joined(b, "&&", c)).text
    ('(a && b) || c', 'a && b && c')
    """
    rank = _RANKS[sign]
    least = _LEAST.get(rank, rank)
    # A chain of the same logical operator needs no parentheses.
    is_chain = sign in ("&&", "||")
    one = left.text if is_chain and left.rank is rank else left.inside(least)
    other = right.text if is_chain and right.rank is rank else right.inside(Rank(least + (least is rank)))
    if sign in "+-" and other.startswith("-"):
        other = f"({other})"
    return ExprText(f"{one} {sign} {other}", rank)


def chosen(condition: ExprText, then: ExprText, otherwise: ExprText) -> ExprText:
    """One of two values.

    >>> chosen(ExprText("a < b", Rank.COMPARISON), ExprText("a"), ExprText("c ? d : e", Rank.CHOICE)).text
    'a < b ? a : (c ? d : e)'
    """
    parts = (one.inside(Rank.OR) for one in (condition, then, otherwise))
    return ExprText("{} ? {} : {}".format(*parts), Rank.CHOICE)
