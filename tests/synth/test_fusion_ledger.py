"""The ledger of fusion has a reason for every pair of kernels, one reading what the other computes, that stay apart."""

from dataclasses import dataclass

import pytest
from tests.synth.both_ways import planned

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, load, unary
from openinfer.loops.ir import Buffer, Kernel, LoopKind, Space
from openinfer.synth.passes.fuse.pair import PRODUCER_NOT_POINTWISE, READER_NOT_POINTWISE, Pair
from openinfer.synth.passes.fuse.rules import RULES, joined
from openinfer.synth.program.ir import KernelStep, Program, Value
from openinfer.synth.program.refusal import Refusal


@dataclass(frozen=True)
class Case:
    """What lies between two nodes of a body on x: f32[4, 32], and what the ledger says of them."""

    body: str
    reason: str
    producer: int = 0
    consumer: int = 1
    temporaries: str = "assign a: f32[4, 32];"

    @property
    def text(self) -> str:
        head = "dynamic { x: f32[4, 32]; s: f32[32, 4]; c: f32[4, 4]; }"
        head += " volatile { y: f32[4, 32]; z: f32[4, 32]; i: i64[4, 32]; }"
        return f"{head} block entry {{ {self.temporaries} {self.body} return y, z; }}"


CASES = {
    "neither is pointwise": Case(
        "op softmax(x, axis=1) >> a; op softmax(a, axis=0) >> y;",
        "the reader does not compute its elements one by one; the producer does not compute its elements one by one",
    ),
    "recomputed at several reads": Case(
        "op exp(x) >> a; op softmax(a, axis=1) >> y;",
        "the reader does not compute its elements one by one; "
        "each element would be computed at 2 reads with 10 operations, and the limit is 8; "
        "the producer does more than move elements",
    ),
    "read elsewhere": Case(
        "op matmul(s, x) >> a; op flip(a, axes=[1]) >> b; op matmul(x, b) >> y;",
        "the reader takes elements from other positions than those it writes; "
        "the producer does not compute its elements one by one; "
        "rows of the producer's result are not rows of the reader's",
        temporaries="assign a: f32[32, 32]; assign b: f32[32, 32];",
    ),
    "a factor of a product": Case(
        "op exp(x) >> a; op matmul(a, s) >> b; op sum_axis(b, axes=[0, 1]) >> t; op add(x, t) >> y;",
        "the reader does not compute its elements one by one; "
        "the reader is a product or an attention, which reads the value from memory; "
        "the producer does more than move elements",
        temporaries="assign a: f32[4, 32]; assign b: f32[4, 4]; assign t: f32[];",
    ),
    "short rows": Case(
        "op matmul(s, c) >> a; op transpose(a, perm=[1, 0]) >> y;",
        "the reader's result has another shape; the producer does not compute its elements one by one; "
        "rows are shorter than 64 bytes",
        temporaries="assign a: f32[32, 4];",
    ),
    "several readers": Case(
        "op softmax(x, axis=1) >> a; op neg(a) >> y; op softmax(a, axis=0) >> z;", "2 kernels read the value"
    ),
    "several results": Case("op sort(x) >> z, i; op neg(z) >> y;", "the producer has several results"),
    "returned": Case("op neg(x) >> y; op abs(y) >> z;", "the graph returns the value"),
}


def first_op(text: str) -> int:
    return text.split("block entry")[1].count("assign")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_ledger_says_why_two_kernels_stay_apart(case: Case) -> None:
    before = first_op(case.text)
    found = {(one.producer - before, one.consumer - before): one for one in planned(case.text, device="generic").ledger}
    assert found[case.producer, case.consumer].reason == case.reason
    assert not found[case.producer, case.consumer].is_fused


def pairs(program: Program) -> set[tuple[int, int]]:
    """The kernels of a program without loops, where one reads what the last kernel before it that wrote it wrote."""
    writers: dict[Value, int] = {}
    found = set()
    for step in program.steps():
        if isinstance(step, KernelStep):
            found |= {(writers[one], step.node) for one in step.inputs if isinstance(one, Value) and one in writers}
            writers |= dict.fromkeys(step.outputs, step.node)
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_ledger_has_every_pair_of_kernels_that_stay_apart_and_no_other(case: Case) -> None:
    plan = planned(case.text, device="generic")
    refused = [(one.producer, one.consumer) for one in plan.ledger if not one.is_fused]
    assert sorted(refused) == sorted(pairs(plan.placed.program))


def kernel(name: str, *, pointwise: bool) -> Kernel:
    builder = Builder()
    x, y = (Buffer(f"{one}_{name}", DTYPES["f32"], (4,), Space.ARENA) for one in "xy")
    with builder.loop(4, LoopKind.PARALLEL) as i:
        if not pointwise:
            builder.store(y, (i,), unary("neg", load(x, i)))
        builder.store(y, (i,), unary("neg", load(x, i)))
    return Kernel(name, (x,), (y,), builder.body)


def pair(*, pointwise: bool) -> Pair:
    one, two = (kernel(name, pointwise=pointwise) for name in ("one", "two"))
    return Pair(one, two, two.inputs[0], is_slice=False, is_weight=False, max_recomputed=8)


def test_every_rule_answers_a_kernel_or_a_refusal_and_equal_refusals_are_said_once() -> None:
    assert all(isinstance(rule(pair(pointwise=False)), Refusal) for rule in RULES)
    assert joined(pair(pointwise=False)) == (READER_NOT_POINTWISE, PRODUCER_NOT_POINTWISE)
    assert isinstance(joined(pair(pointwise=True)), Kernel)
