"""Expressions that know their precedence, so that parentheses appear only where they are useful.

They appear where an operator binds more tightly than its operand, where sums and products do not associate to the
left, and where compilers warn without them: around ``&&`` inside of ``||``, around operators inside of bitwise
operators, and around comparisons inside of comparisons.
"""

from dataclasses import dataclass
from enum import IntEnum


class Rank(IntEnum):
    """The precedence of an expression, the loosest first."""

    CHOICE = 0
    OR = 1
    AND = 2
    BITS = 3
    COMPARISON = 4
    """Also the rank of a logical not: compilers warn about it inside of a comparison."""
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
"""The lowest rank of an operand without parentheses, where it is not the operator's own."""


@dataclass(frozen=True)
class ExprText:
    """An expression as text, and its precedence."""

    text: str
    rank: Rank = Rank.ATOM

    def inside(self, least: Rank) -> str:
        """The text as an operand: in parentheses if it binds more loosely than ``least``.

        >>> ExprText("a + b", Rank.SUM).inside(Rank.PRODUCT), ExprText("a + b", Rank.SUM).inside(Rank.SUM)
        ('(a + b)', 'a + b')
        """
        return self.text if self.rank >= least else f"({self.text})"

    @property
    def atom(self) -> str:
        """The text as an operand of any operator."""
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
    """A conditional expression.

    >>> chosen(ExprText("a < b", Rank.COMPARISON), ExprText("a"), ExprText("c ? d : e", Rank.CHOICE)).text
    'a < b ? a : (c ? d : e)'
    """
    parts = (one.inside(Rank.OR) for one in (condition, then, otherwise))
    return ExprText("{} ? {} : {}".format(*parts), Rank.CHOICE)
