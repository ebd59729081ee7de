"""Checks, and the numbers of failures, are planned before anything is printed; printers look them up."""

from tests.synth.both_ways import planned

from openinfer.errors import Code
from openinfer.synth.memory.checks.records import ExtentChecks, InRange, KernelChecks, Known, LoopChecks, SliceChecks
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.failures import BY_ZERO, NEGATIVE, OUTSIDE, TOO_LONG
from openinfer.synth.targets.target import NODE_BY_NODE

GRAPH = """
sizes { T <= 8; }
dynamic { x: f32[T, 4]; n: i64; }
volatile { y: f32[T - 2, 4]; z: f32[T - 2, 4]; row: f32[4]; }
persistent { seen(i): f32[4] @table @fixed(i=63); }
block entry {
    op slice(x, axes=[0], starts=[2], ends=[8]) >> y;
    op relu(y) >> z;
    loop turns (i in 0..8 / n) {
        cache.read seen[i] >> row;
        cache.read seen[n - 1] >> row;
    }
    return z, row;
}
"""


def placed() -> Placed:
    return planned(GRAPH, passes=NODE_BY_NODE).project.placed


def test_every_step_has_checks_of_its_kind_with_the_numbers_of_failures() -> None:
    found = placed()
    rows = found.failures.rows
    steps = found.checks.blocks["entry"].steps
    assert len(steps) == len(found.program.blocks["entry"])
    (loop,) = (one for one in steps if isinstance(one, LoopChecks))
    assert loop.bounds is not None
    assert [rows[loop.bounds.by_zero].mistake, rows[loop.bounds.too_long].mistake] == [BY_ZERO, TOO_LONG]
    _first, read = (one for one in loop.body if isinstance(one, SliceChecks))
    assert read.negative is not None
    assert [rows[read.negative].mistake, rows[read.outside].mistake] == [NEGATIVE, OUTSIDE]


def test_what_an_earlier_step_has_checked_is_not_checked_again() -> None:
    own = [one for one in placed().checks.blocks["entry"].steps if isinstance(one, KernelChecks | ExtentChecks)]
    checks = [check for one in own for check in (one.extents if isinstance(one, KernelChecks) else one.checks)]
    assert [check for check in checks if isinstance(check, InRange)] == [
        check for check in dict.fromkeys(checks) if isinstance(check, InRange)
    ], "an extent is looked at once"
    assert not any(isinstance(check, Known) for check in checks), "the caller gives the size"


def test_code_has_the_planned_failures_and_no_others() -> None:
    plan = planned(GRAPH)
    failures = plan.project.placed.failures
    source = " ".join(plan.project.code()["src/net.c"].split())
    listed = ", ".join(str(row.node) for row in failures.rows)
    assert f"static const int32_t nodes[] = {{ {listed} }};" in source
    outside = next(row for row in failures.rows if row.mistake is OUTSIDE)
    assert outside.mistake.code is Code.INDEX_OUT_OF_RANGE
    assert f"fail(c, NET_ERROR_INDEX, {failures.number(outside.node, OUTSIDE)})" in source
