"""Teams of groups: what a launch must be like whose groups exchange values."""

from collections.abc import Iterator, Sequence

from openinfer.dtypes import DType
from openinfer.loops.ir import (
    Bind,
    Const,
    Exchange,
    For,
    GroupBarrier,
    Kernel,
    Leave,
    Ready,
    Statement,
    TeamWords,
    bodies,
    walk,
)

_DIGIT = 16
"""Bits of a value in each word, beside one that says that they are there."""
_LINE = 32
"""Words of memory in a cache line."""


def digits_of(dtype: DType) -> int:
    """The words through which one group passes on a value.

    >>> from openinfer.dtypes import dtype_of
    >>> digits_of(dtype_of("f32")), digits_of(dtype_of("i64"))
    (2, 4)
    """
    return -(-dtype.bits // _DIGIT)


def row_words(words: TeamWords) -> int:
    """The distance between the words of two rows, which share no cache line; one more counts groups that are done.

    >>> row_words(TeamWords(rows=1, groups=8, count=32))
    64
    """
    return -(-(words.count + 1) // _LINE) * _LINE


def needed_words(words: TeamWords) -> int:
    """The words of all rows."""
    return words.rows * row_words(words)


def words_of(kernel: Kernel) -> int:
    """The words that a launch needs for the exchanges of all its rows."""
    return max((needed_words(one.words) for one in walk(kernel.body) if isinstance(one, Exchange)), default=0)


def team_problems(kernel: Kernel) -> Iterator[str]:
    """The problems, in words, of the teams of a launch, and of exchanges outside of teams."""
    teams = [one for one in kernel.body if isinstance(one, For) and one.bind is Bind.TEAM]
    inside = [one for team in teams for one in walk((team,))]
    if sum(map(_is_of_team, walk(kernel.body))) > sum(map(_is_of_team, inside)):
        yield "groups exchange values outside of a team"
    if sum(map(_is_team, walk(kernel.body))) > len(teams):
        yield "a team is part of another loop"
    for team in teams:
        yield from _of(team)
    if teams and kernel.can_fail:
        yield "a group of a team may fail, and others would wait for it"
    if teams and any(isinstance(one, Ready) for one in walk(kernel.body)):
        yield "groups of a team wait for other launches, which may fail after some of them went on"


def _of(team: For) -> Iterator[str]:
    loops = [one for one in team.body if isinstance(one, For) and one.bind is Bind.GROUP]
    if len(loops) != len(team.body) or len(loops) != 1:
        yield "a team is not one loop over groups"
        return
    extent = loops[0].extent
    found = [one for one in walk(team.body) if isinstance(one, Exchange | Leave)]
    if any(Const(one.words.groups, extent.dtype) != extent for one in found):
        yield "not all groups of a team exchange values"
    if len({one.words for one in found}) > 1:
        yield "the rows of a team have words in several places"
    yield from _of_words([one for one in found if isinstance(one, Exchange)])
    for body in _all_bodies(team):
        yield from _in_turn(body)


def _of_words(found: Sequence[Exchange]) -> Iterator[str]:
    """Words are used once: a value that is still there from before would be taken for a new one."""
    end = 0
    for one in sorted(found, key=lambda one: one.place):
        if one.place < end:
            yield f"word {one.place} of a row is used by two exchanges"
        end = one.place + one.words.groups * sum(digits_of(buffer.dtype) for buffer in one.memory)
        if end > one.words.count:
            yield f"an exchange needs {end} words of a row, which has {one.words.count}"


def _in_turn(body: Sequence[Statement]) -> Iterator[str]:
    """The problems of what one body does itself: barriers and exchanges alternate, and groups leave what they used."""
    is_free, is_used = False, False
    for one in body:
        if isinstance(one, Exchange) and not is_free:
            yield "an exchange may overwrite what threads still read"
        is_free = isinstance(one, GroupBarrier) or (is_free and not isinstance(one, Exchange))
        is_used = isinstance(one, Exchange) or (is_used and not isinstance(one, Leave))
    if is_used:
        yield "groups do not leave the words of a row"


def _all_bodies(one: Statement) -> Iterator[Sequence[Statement]]:
    yield from (body for part in walk((one,)) for body in bodies(part))


def _is_team(one: Statement) -> bool:
    return isinstance(one, For) and one.bind is Bind.TEAM


def _is_of_team(one: Statement) -> bool:
    return isinstance(one, Exchange | Leave)
