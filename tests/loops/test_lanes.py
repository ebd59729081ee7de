"""Threads of a group in the interpreter: what they have together, what they share, and where they race or diverge."""

import numpy as np
import pytest

from openinfer.dtypes import DTYPES
from openinfer.loops.build import index, load
from openinfer.loops.interpret import IterationOrder, UndefinedError, interpret
from openinfer.loops.ir import (
    Alloc,
    Bind,
    Buffer,
    Combine,
    Const,
    Fail,
    For,
    GroupBarrier,
    If,
    Kernel,
    Let,
    Local,
    LoopKind,
    Ready,
    ScalarVar,
    Select,
    Space,
    Statement,
    Store,
    WideLoad,
    WideStore,
)
from openinfer.loops.verify import verify

F32, BF16 = DTYPES["f32"], DTYPES["bf16"]
T, S, OTHER, BEFORE = ScalarVar("t"), *(ScalarVar(name, F32) for name in ("s", "other", "before"))
X, Y = Buffer("x", F32, (8,)), Buffer("y", F32, (8,))
SHARED = Buffer("shared", F32, (8,), Space.GROUP)
ARRAY = np.arange(8, dtype=np.float32)


def group(*body: Statement, threads: int = 8) -> Kernel:
    inner = For(T, index(threads), body, LoopKind.PARALLEL, Bind.THREAD)
    loop = For(ScalarVar("g"), index(1), (Alloc(SHARED), inner), LoopKind.PARALLEL, Bind.GROUP)
    return Kernel("k", (X,), (Y,), (loop,))


def both(kernel: Kernel) -> np.ndarray:
    assert verify(kernel) == []
    one, other = (interpret(kernel, [ARRAY], order=order)[0] for order in (iter, reversed))
    assert (one == other).all()
    return one


def test_threads_see_what_others_wrote_before_a_barrier() -> None:
    turned = Store(Y, (T,), load(SHARED, index(7) - T))
    assert both(group(Store(SHARED, (T,), load(X, T)), GroupBarrier(), turned)).tolist() == ARRAY[::-1].tolist()


@pytest.mark.parametrize("order", [iter, reversed])
def test_without_a_barrier_it_is_a_race(order: IterationOrder) -> None:
    kernel = group(GroupBarrier(), Store(SHARED, (T,), load(X, T)), Store(Y, (T,), load(SHARED, index(7) - T)))
    with pytest.raises(UndefinedError, match=r"read before it is written|parallel loop"):
        interpret(kernel, [ARRAY], order=order)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_variables_are_combined_over_neighbours(width: int) -> None:
    combine = Combine((S,), (OTHER,), (S + OTHER,), width)
    found = both(group(Local(S, load(X, T)), combine, Store(Y, (T,), S)))
    assert found.tolist() == np.repeat(ARRAY.reshape(-1, width).sum(axis=1), width).tolist()


@pytest.mark.parametrize("width", [1, 2, 8])
def test_threads_know_the_total_of_those_before_them(width: int) -> None:
    combine = Combine((S,), (OTHER,), (S + OTHER,), width, (BEFORE,))
    found = both(group(Local(S, load(X, T)), Local(BEFORE, Const(0.5, F32)), combine, Store(Y, (T,), BEFORE)))
    rows = ARRAY.reshape(-1, width)
    assert found.tolist() == (rows.cumsum(axis=1) - rows + 0.5).ravel().tolist()


def test_all_threads_get_the_same_bits_though_the_order_matters() -> None:
    """Of two that compare equal, it is the first."""
    combine = Combine((S,), (OTHER,), (Select(OTHER > S, OTHER, S),), 8)
    zero = Select((T % 2).eq(0), Const(0.0, F32), Const(-0.0, F32))
    assert not np.signbit(both(group(Local(S, zero), combine, Store(Y, (T,), S)))).any()


@pytest.mark.parametrize("one", [GroupBarrier(), Combine((S,), (OTHER,), (S + OTHER,), 8)], ids=["barrier", "combine"])
def test_a_meeting_to_which_not_all_come_is_refused(one: Statement) -> None:
    kernel = group(Local(S, load(X, T)), If(T < 7, (one,)), Store(Y, (T,), S))
    with pytest.raises(UndefinedError, match="others do not reach"):
        interpret(kernel, [ARRAY])


def test_half_of_the_threads_may_meet_by_themselves() -> None:
    combine = Combine((S,), (OTHER,), (S + OTHER,), 4)
    assert both(group(Local(S, load(X, T)), If(T < 4, (combine,)), Store(Y, (T,), S))).tolist() == [6] * 4 + [
        4,
        5,
        6,
        7,
    ]


def test_neighbours_are_loaded_and_stored_at_once() -> None:
    names = tuple(ScalarVar(f"v{place}", F32) for place in range(4))
    first, made = T * 4, tuple(ScalarVar(f"n{place}", F32) for place in range(4))
    lets = tuple(Let(one, -value) for one, value in zip(made, names, strict=True))
    body: tuple[Statement, ...] = (WideLoad(names, X, (first,)), *lets, WideStore(Y, (first,), made))
    assert both(group(*body, threads=2)).tolist() == (-ARRAY).tolist()


def test_a_wide_access_that_is_not_aligned_is_refused() -> None:
    names = tuple(ScalarVar(f"v{place}", F32) for place in range(4))
    kernel = group(WideLoad(names, X, (T + 2,)), threads=1)
    with pytest.raises(UndefinedError, match="in one access from 2 on"):
        interpret(kernel, [ARRAY])


def test_verify_knows_what_threads_do() -> None:
    wide = Buffer("x", BF16, (8,))
    three = tuple(ScalarVar(f"v{place}", F32) for place in range(3))
    body = (Let(S, Const(1.0, F32)), Combine((S,), (OTHER,), (S + OTHER,), 3), WideLoad(three, wide, (T,)))
    loop = For(T, index(2), body, LoopKind.PARALLEL, Bind.THREAD)
    assert verify(Kernel("k", (wide,), (), (loop,))) == [
        "3 threads combine variables, which is not a power of two",
        "'s' is combined, but is not a local variable",
        "3 elements of 'x' are not a whole number of words",
    ]
    combine = Combine((S,), (OTHER,), (S + OTHER,), 2, (BEFORE,))
    wrong = (Local(S, Const(1.0, F32)), Let(BEFORE, Const(0.0, F32)), combine)
    assert verify(Kernel("k", (), (), (For(T, index(2), wrong, LoopKind.PARALLEL, Bind.THREAD),))) == [
        "'before' gets what threads before have, but is not a local variable"
    ]


# --- teams of groups --------------------------------------------------------------------------------------------------

G, AT, THERE = (ScalarVar(name) for name in ("g", "at", "there"))
PASSED = Buffer("passed", F32, (8,), Space.SCRATCH)
MEETING = GroupBarrier(groups=2)


def team(*body: Statement) -> Kernel:
    """Two teams of two groups of two threads each, which have ``at`` and the place of the other group's thread."""
    lets = Let(AT, ScalarVar("m") * 4 + G * 2 + T), Let(THERE, ScalarVar("m") * 4 + (index(1) - G) * 2 + T)
    threads = For(T, index(2), (*lets, *body), LoopKind.PARALLEL, Bind.THREAD)
    loop = For(G, index(2), (Alloc(SHARED), threads), LoopKind.PARALLEL, Bind.GROUP)
    return Kernel("k", (X,), (Y, PASSED), (For(ScalarVar("m"), index(2), (loop,), LoopKind.PARALLEL, Bind.TEAM),))


PASS = Store(PASSED, (AT,), load(X, AT))
SWAP = Store(Y, (AT,), load(PASSED, THERE))


def test_groups_see_what_others_wrote_before_all_of_the_team_met() -> None:
    assert both(team(PASS, MEETING, SWAP)).tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
    assert both(team(MEETING, PASS, GroupBarrier(), MEETING, SWAP)).tolist() == [2, 3, 0, 1, 6, 7, 4, 5]


@pytest.mark.parametrize("between", [(), (GroupBarrier(),)])
@pytest.mark.parametrize("order", [iter, reversed])
def test_groups_race_unless_they_meet(order: IterationOrder, between: tuple[Statement, ...]) -> None:
    kernel = team(MEETING, PASS, *between, SWAP)
    with pytest.raises(UndefinedError, match=r"read before it is written|parallel loop"):
        interpret(kernel, [ARRAY], order=order)


def test_what_others_still_read_is_not_written_again() -> None:
    """Of two orders, one shows it."""
    kernel = team(PASS, MEETING, SWAP, Store(PASSED, (AT,), load(X, AT)))
    with pytest.raises(UndefinedError, match="parallel loop"):
        both(kernel)


def test_each_group_of_a_team_has_its_own_shared_memory() -> None:
    kept = Store(SHARED, (T,), load(X, AT)), GroupBarrier(), PASS, MEETING
    assert both(team(*kept, Store(Y, (AT,), load(SHARED, T)))).tolist() == ARRAY.tolist()


@pytest.mark.parametrize("place", [G, T])
def test_groups_that_others_do_not_meet_are_refused(place: ScalarVar) -> None:
    with pytest.raises(UndefinedError, match="which others do not reach"):
        interpret(team(PASS, If(place.eq(0), (MEETING,))), [ARRAY])


def test_groups_that_meet_elsewhere_are_refused() -> None:
    with pytest.raises(UndefinedError, match="which others do not reach"):
        interpret(team(PASS, If(G.eq(0), (MEETING,), (GroupBarrier(groups=2),))), [ARRAY])


def test_a_team_has_as_many_groups_as_meet() -> None:
    kernel = team(PASS, GroupBarrier(groups=3), SWAP)
    assert verify(kernel) == ["not all groups of a team wait for each other"]
    with pytest.raises(UndefinedError, match="which others do not reach"):
        interpret(kernel, [ARRAY])


def test_groups_meet_in_teams_only() -> None:
    kernel = Kernel("k", (X,), (Y,), (For(T, index(2), (MEETING,), LoopKind.PARALLEL, Bind.THREAD),))
    assert verify(kernel) == ["groups wait for each other outside of a team"]
    with pytest.raises(UndefinedError, match="outside of a team"):
        interpret(kernel, [ARRAY])
    (loop,) = team(MEETING).body
    assert isinstance(loop, For)
    (inner,) = loop.body
    odd = For(ScalarVar("m"), index(2), (Let(ScalarVar("n"), index(0)), inner), LoopKind.PARALLEL, Bind.TEAM)
    assert "a team is not one loop over groups" in verify(Kernel("k", (X,), (Y, PASSED), (odd,)))
    inside = For(ScalarVar("n"), index(2), (loop,))
    assert "a team is part of another loop" in verify(Kernel("k", (X,), (Y, PASSED), (inside,)))


def test_groups_of_a_team_do_not_end_one_by_one() -> None:
    """Others would wait for them forever."""
    assert verify(team(Fail("no result"), MEETING)) == ["a group of a team may fail, and others would wait for it"]
    problems = verify(team(Ready(), PASS, MEETING, SWAP))
    assert any(one.startswith("groups of a team wait for other launches") for one in problems)
