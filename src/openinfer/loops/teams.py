"""Teams of groups: what a launch must be like whose groups wait for each other."""

from collections.abc import Iterator

from openinfer.loops.ir import Bind, Const, For, GroupBarrier, Kernel, Ready, Statement, walk


def team_problems(kernel: Kernel) -> Iterator[str]:
    """The problems, in words, of the teams of a launch, and of barriers of several groups outside of teams."""
    teams = [one for one in kernel.body if isinstance(one, For) and one.bind is Bind.TEAM]
    inside = [one for team in teams for one in walk((team,))]
    if sum(map(_is_of_team, walk(kernel.body))) > sum(map(_is_of_team, inside)):
        yield "groups wait for each other outside of a team"
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
    barriers = [one for one in walk(team.body) if isinstance(one, GroupBarrier) and one.groups > 1]
    if any(Const(one.groups, extent.dtype) != extent for one in barriers):
        yield "not all groups of a team wait for each other"


def _is_team(one: Statement) -> bool:
    return isinstance(one, For) and one.bind is Bind.TEAM


def _is_of_team(one: Statement) -> bool:
    return isinstance(one, GroupBarrier) and one.groups > 1
