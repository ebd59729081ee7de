"""What a statement would compute more than once has a name, and nothing is computed that was not."""

from random import Random

import pytest
from tests.loops.random_values import F32, I32, MEMORY, U8, random_value, results

from openinfer.dtypes import DType
from openinfer.loops.cse import named, with_names
from openinfer.loops.ir import (
    BOOL,
    INDEX,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Compare,
    Const,
    For,
    If,
    Let,
    Load,
    Local,
    Math,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Store,
    Unary,
    visit,
    walk,
)

X, Y = Buffer("x", F32, (8,)), Buffer("y", F32, (8,))
AT = ScalarVar("i")


def names(statements: tuple[Statement, ...]) -> list[str]:
    return [one.var.name for one in walk(statements) if isinstance(one, Let)]


@pytest.mark.parametrize("kind", [INDEX, I32, U8, F32, BOOL], ids=lambda one: one.name)
def test_results_stay_the_same(kind: DType) -> None:
    rng = Random(kind.name)
    count = 0
    for _ in range(100):
        part = random_value(rng, kind, 3)
        op: BinaryOp = "and" if kind is BOOL else "add"
        value = Binary(op, Binary(op, part, random_value(rng, kind, 2)), part)
        lets, rest = named(value)
        count += len(lets)
        assert results(value) == results(rest, *lets), value
    assert count > 20


def test_functions_and_longer_values_have_names() -> None:
    x = Load(X, (AT,))
    scaled = x * Load(Y, (AT,))
    lets, rest = named(Math("exp", (x,)) + Math("exp", (x,)) * scaled + scaled)
    assert [let.var.name for let in lets] == ["exp_0", "t0"]
    assert rest == lets[0].var + lets[0].var * lets[1].var + lets[1].var


def test_short_values_are_spelled_again() -> None:
    x = Load(X, (AT,))
    assert named(Select(x > 0.0, x, Const(0.0, F32)))[0] == ()


def harmful(value: Scalar) -> list[Scalar]:
    """What must not be computed but where a condition says so, with enough around it to be worth a name."""
    position = Cast(Math("floor", (value,)), I32)
    quotient = Binary("div", Const(7, I32), Load(MEMORY["i32"], (AT,)))
    return [
        Load(X, (AT + 3,)) * 2.0,
        Cast(Binary("add", quotient, quotient), F32),
        Cast(Binary("add", position, Const(1, I32)), F32),
    ]


@pytest.mark.parametrize("which", range(3))
def test_what_is_guarded_stays_guarded(which: int) -> None:
    guarded = harmful(ScalarVar("v", F32))[which]
    condition = Compare("lt", AT, Const(5, INDEX))
    only = Select(condition, guarded + guarded * guarded, Const(0.0, F32))
    for value in (only, Cast(Binary("and", condition, guarded + guarded * guarded > 1.0), F32)):
        lets, _ = named(value)
        for let in lets:
            parts = list(visit(let.value))
            assert not any(isinstance(part, Load) for part in parts)
            assert not any(isinstance(part, Cast) and part.type is I32 for part in parts)


def test_what_both_branches_compute_is_computed_in_any_case() -> None:
    x = Load(X, (AT,)) * 2.0
    lets, _ = named(Select(Compare("lt", AT, Const(5, INDEX)), x + 1.0, x - 1.0))
    assert [let.value for let in lets] == [x]


def test_a_name_is_used_again_inside_its_scope_and_nowhere_else() -> None:
    place = AT * 2 + ScalarVar("k") - 1
    inner = If(Binary("and", place >= 0, place < 8), (Store(Y, (place,), Load(X, (place,))),))
    made = with_names((For(AT, Const(4, INDEX), (inner,)), Store(Y, (Const(0, INDEX),), Load(X, (place,)))))
    assert names(made) == ["t0"]
    assert isinstance(made[0], For)
    _, condition = made[0].body
    assert isinstance(condition, If)
    assert condition.then == (Store(Y, (ScalarVar("t0"),), Load(X, (ScalarVar("t0"),))),)
    assert made[1] == Store(Y, (Const(0, INDEX),), Load(X, (place,)))


def test_what_may_have_changed_is_computed_again() -> None:
    total, x = ScalarVar("total", F32), Load(X, (AT,))
    twice: list[Statement] = []
    for value in (total * 2.0 + 1.0, x * 2.0 + 1.0):
        store = Store(Y, (AT,), value * value)
        twice += [store, SetLocal(total, x), Store(X, (AT,), total), store]
    made = with_names((Local(total, Const(0.0, F32)), *twice))
    assert len(names(made)) == 4


def test_no_name_is_taken() -> None:
    t0 = Buffer("t0", F32, (8,))
    x = Load(t0, (AT,)) + ScalarVar("t1", F32)
    made = with_names((Store(Y, (AT,), Unary("neg", x) * x),), {"t2"})
    assert names(made) == ["t3"]


def test_a_load_below_positions_that_get_no_name_has_one() -> None:
    code = Load(MEMORY["i32"], (AT,))
    place = Cast(code, INDEX)
    lets, rest = named(Select(place < 0, place + 8, place))
    assert [let.value for let in lets] == [code]
    assert rest == Select(Cast(lets[0].var, INDEX) < 0, Cast(lets[0].var, INDEX) + 8, Cast(lets[0].var, INDEX))


def test_a_branch_knows_none_of_the_names_of_the_other_one() -> None:
    value = Unary("neg", Cast(AT, F32))
    stores = (Store(Y, (AT,), value * value),)
    (branch,) = with_names((If(Compare("lt", AT, Const(3, INDEX)), stores, stores),))
    assert isinstance(branch, If)
    for body in (branch.then, branch.otherwise):
        (let, _) = body
        assert isinstance(let, Let)
