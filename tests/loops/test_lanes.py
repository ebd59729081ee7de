"""Threads of a group in the interpreter: what they have together, what they share, and where they race or diverge."""

from dataclasses import replace

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
    Exchange,
    Fail,
    For,
    GroupBarrier,
    If,
    Kernel,
    Leave,
    Let,
    Local,
    LoopKind,
    Ready,
    Scalar,
    ScalarVar,
    Select,
    Space,
    Statement,
    Store,
    TeamWords,
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

G, M, AT = (ScalarVar(name) for name in ("g", "m", "at"))
TAKEN = Buffer("taken", F32, (2,), Space.GROUP)
WORDS = TeamWords(rows=2, groups=2, count=8)
FREE = GroupBarrier()
KEEP = Store(SHARED, (T,), load(X, AT))
FIRST = Exchange((load(SHARED, index(0)),), (TAKEN,), M, WORDS, 0)
AGAIN = replace(FIRST, values=(load(SHARED, index(1)),), place=4)
LEAVE = Leave(M, WORDS)
SHOW = Store(Y, (AT,), load(TAKEN, T))


def team(*body: Statement) -> Kernel:
    """Two teams of two groups of two threads each, with the place of each thread among all in ``at``."""
    threads = For(T, index(2), (Let(AT, M * 4 + G * 2 + T), *body), LoopKind.PARALLEL, Bind.THREAD)
    loop = For(G, index(2), (Alloc(SHARED), Alloc(TAKEN), threads), LoopKind.PARALLEL, Bind.GROUP)
    return Kernel("k", (X,), (Y,), (For(M, index(2), (loop,), LoopKind.PARALLEL, Bind.TEAM),))


def test_each_group_gets_the_values_of_all() -> None:
    kernel = team(KEEP, FREE, FIRST, SHOW, LEAVE)
    assert verify(kernel) == []
    assert both(kernel).tolist() == [0, 2, 0, 2, 4, 6, 4, 6]
    kernel = team(KEEP, FREE, FIRST, FREE, AGAIN, LEAVE, SHOW)
    assert verify(kernel) == []
    assert both(kernel).tolist() == [1, 3, 1, 3, 5, 7, 5, 7]


def test_memory_has_nothing_of_others_before_they_exchange_it() -> None:
    with pytest.raises(UndefinedError, match="read before it is written"):
        interpret(team(KEEP, FREE, SHOW), [ARRAY])
    with pytest.raises(UndefinedError, match="outside of"):
        interpret(team(KEEP, FREE, FIRST, Store(Y, (AT,), load(TAKEN, T + 1))), [ARRAY])


@pytest.mark.parametrize("order", [iter, reversed])
def test_groups_see_nothing_else_of_each_other(order: IterationOrder) -> None:
    """An exchange is no fence."""
    passed = Buffer("passed", F32, (8,), Space.SCRATCH)
    store = Store(passed, (AT,), load(X, AT))
    swap = Store(Y, (AT,), load(passed, M * 4 + (index(1) - G) * 2 + T))
    kernel = replace(team(KEEP, store, FREE, FIRST, LEAVE, swap), outputs=(Y, passed))
    with pytest.raises(UndefinedError, match="of a parallel loop touch"):
        interpret(kernel, [ARRAY], order=order)


def test_threads_of_a_group_exchange_the_same_value() -> None:
    with pytest.raises(UndefinedError, match="exchange different values"):
        interpret(team(KEEP, FREE, replace(FIRST, values=(load(X, AT),)), LEAVE, SHOW), [ARRAY])


def test_what_other_threads_store_is_not_exchanged_without_a_barrier() -> None:
    with pytest.raises(UndefinedError, match=r"read before it is written|of a parallel loop touch"):
        both(team(FREE, KEEP, FIRST, LEAVE, SHOW))


@pytest.mark.parametrize("place", [G, T])
def test_groups_whose_values_others_do_not_await_are_refused(place: ScalarVar) -> None:
    with pytest.raises(UndefinedError, match="which others do not reach"):
        interpret(team(KEEP, FREE, If(place.eq(0), (FIRST,)), LEAVE), [ARRAY])


def test_groups_that_exchange_values_elsewhere_are_refused() -> None:
    with pytest.raises(UndefinedError, match="which others do not reach"):
        interpret(team(KEEP, FREE, If(G.eq(0), (FIRST,), (AGAIN,)), LEAVE), [ARRAY])


@pytest.mark.parametrize("row", [G, M + 1, M - 1])
def test_groups_exchange_values_of_one_row_that_has_words(row: Scalar) -> None:
    with pytest.raises(UndefinedError, match="through words of rows"):
        interpret(team(KEEP, FREE, replace(FIRST, row=row), LEAVE), [ARRAY])


def test_words_are_used_once() -> None:
    other = replace(AGAIN, place=3)
    assert verify(team(KEEP, FREE, FIRST, FREE, other, LEAVE)) == ["word 3 of a row is used by two exchanges"]
    loop = For(ScalarVar("n"), index(2), (FREE, FIRST, LEAVE))
    with pytest.raises(UndefinedError, match="through words of rows"):
        interpret(team(KEEP, loop), [ARRAY])
    other = replace(AGAIN, place=6)
    assert verify(team(KEEP, FREE, other, LEAVE)) == ["an exchange needs 10 words of a row, which has 8"]
    other = replace(AGAIN, words=replace(WORDS, rows=4))
    assert verify(team(KEEP, FREE, FIRST, FREE, other, LEAVE)) == ["the rows of a team have words in several places"]


def test_words_are_left_as_they_were_found() -> None:
    for body in ((KEEP, FREE, FIRST), (KEEP, FREE, FIRST, LEAVE, FREE, AGAIN)):
        assert verify(team(*body)) == ["groups do not leave the words of a row"]


def test_threads_may_still_read_what_an_exchange_without_a_barrier_overwrites() -> None:
    assert verify(team(KEEP, FREE, FIRST, AGAIN, LEAVE)) == ["an exchange may overwrite what threads still read"]


def test_values_are_exchanged_in_memory_of_the_group() -> None:
    taken = Buffer("taken", F32, (1,), Space.ARENA)
    kernel = team(KEEP, FREE, replace(FIRST, memory=(taken,)), LEAVE)
    assert "'taken' gets values of all groups, but is not in group memory" in verify(kernel)
    assert "index 1 of 'taken' is outside of [1]" in verify(kernel)
    whole = replace(FIRST, values=(index(1),))
    assert "what is exchanged in 'taken' is index, not f32: 1" in verify(team(FREE, whole, LEAVE))


def test_all_groups_of_a_team_exchange_values() -> None:
    fewer = replace(WORDS, groups=3, count=12)
    exchange = replace(FIRST, words=fewer, memory=(SHARED,), values=(Const(1.0, F32),))
    kernel = team(FREE, exchange, Leave(M, fewer))
    assert verify(kernel) == ["not all groups of a team exchange values"]
    with pytest.raises(UndefinedError, match="which others do not reach"):
        interpret(kernel, [ARRAY])


def test_groups_exchange_values_in_teams_only() -> None:
    one = replace(FIRST, values=(Const(1.0, F32),), row=index(0))
    inner = For(T, index(2), (FREE, one), LoopKind.PARALLEL, Bind.THREAD)
    kernel = Kernel("k", (X,), (Y,), (Alloc(TAKEN), inner))
    assert verify(kernel) == ["groups exchange values outside of a team"]
    with pytest.raises(UndefinedError, match="outside of a team"):
        interpret(kernel, [ARRAY])
    (loop,) = team(KEEP, FREE, FIRST, LEAVE).body
    assert isinstance(loop, For)
    (inner_loop,) = loop.body
    odd = For(M, index(2), (Let(ScalarVar("n"), index(0)), inner_loop), LoopKind.PARALLEL, Bind.TEAM)
    assert "a team is not one loop over groups" in verify(Kernel("k", (X,), (Y,), (odd,)))
    inside = For(ScalarVar("n"), index(2), (loop,))
    assert "a team is part of another loop" in verify(Kernel("k", (X,), (Y,), (inside,)))


def test_groups_of_a_team_do_not_end_one_by_one() -> None:
    """Others would wait for them forever."""
    may_fail = team(Fail("no result"), KEEP, FREE, FIRST, LEAVE)
    assert verify(may_fail) == ["a group of a team may fail, and others would wait for it"]
    problems = verify(team(Ready(), KEEP, FREE, FIRST, LEAVE))
    assert any(one.startswith("groups of a team wait for other launches") for one in problems)
