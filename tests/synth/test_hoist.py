"""What is the same in every iteration of a loop is computed once before it, on devices that run kernels in launches."""

from openinfer import graph
from openinfer.check import bind
from openinfer.loops.ir import Kernel
from openinfer.synth.lower.graph import lowered
from openinfer.synth.passes.hoist import hoisted
from openinfer.synth.program.ir import KernelStep, LoopStep, steps_in

TEXT = """
dynamic { x: f32[4, 8]; at: i32; }
volatile { y: f32[4, 8]; }
block entry {
    assign z: f32[4, 8];
    assign next: i32;
    op add(x, x) >> y;
    op add(x, x) >> z;
    loop again (i in 0..3) {
        op add(at, 1) >> next;
        op rope(y, at) >> y;
        op rope(z, at) >> z;
        op add(y, z) >> y;
    }
    return y;
}
"""


def before_and_inside(text: str) -> tuple[list[Kernel], list[Kernel]]:
    """The kernels before the loop, and in it."""
    steps = hoisted(lowered(bind(graph(text), None, {}), frozenset())).blocks["entry"]
    (loop,) = (one for one in steps if isinstance(one, LoopStep))
    first, inside = steps[: steps.index(loop)], steps_in(loop.body)
    return [one.kernel for one in first if isinstance(one, KernelStep)], [
        one.kernel for one in inside if isinstance(one, KernelStep)
    ]


def test_kernels_that_begin_alike_begin_once_before_the_loop() -> None:
    before, inside = before_and_inside(TEXT)
    (once,) = (one for one in before if one.name == "rope_once")
    assert [one.name for one in once.inputs] == ["positions"]
    ropes = [one for one in inside if one.name == "rope"]
    assert [[one.name for one in rope.inputs] for rope in ropes] == [["x", *(one.name for one in once.outputs)]] * 2
    assert not any(rope.scratch for rope in ropes)


def test_what_reads_what_the_loop_changes_stays_in_it() -> None:
    before, inside = before_and_inside(
        TEXT.replace("rope(y, at)", "rope(y, next)").replace("rope(z, at)", "rope(z, next)")
    )
    (once,) = (one for one in before if one.name == "rope_once")
    assert not once.inputs
    assert all("positions" in {one.name for one in rope.inputs} for rope in inside if rope.name == "rope")
