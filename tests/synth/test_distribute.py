"""Rows that inner loops share become tables, on devices that have a thread for each element of them."""

import numpy as np

from openinfer import graph
from openinfer.check import bind
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Alloc, For, LoopKind
from openinfer.loops.verify import verify
from openinfer.synth.lower.graph import lowered
from openinfer.synth.passes.distribute import distributed
from openinfer.synth.passes.hoist import hoisted
from openinfer.synth.program.ir import KernelStep, LoopStep, Program, steps_in

TEXT = """
dynamic { x: f32[3, 5, 8]; y: f32[2, 5, 8]; at: i32[5]; }
volatile { z: f32[3, 5, 8]; w: f32[2, 5, 8]; }
block entry {
    op add(x, x) >> z;
    op add(y, y) >> w;
    loop again (i in 0..3) {
        op rope(z, at) >> z;
        op rope(w, at) >> w;
    }
    return z, w;
}
"""


def program() -> Program:
    return lowered(bind(graph(TEXT), None, {}), frozenset())


def ropes(found: Program) -> list[KernelStep]:
    steps = steps_in(found.blocks["entry"])
    return [one for one in steps if isinstance(one, KernelStep) and one.kernel.name == "rope"]


def nested(loop: For) -> list[int]:
    """The extents of parallel loops around everything else."""
    inner = loop.body[0]
    more = nested(inner) if len(loop.body) == 1 and isinstance(inner, For) else []
    return [loop.extent.value, *more] if loop.kind is LoopKind.PARALLEL else []  # type: ignore[attr-defined]


def test_a_table_of_angles_has_a_loop_of_its_own_in_which_each_angle_is_an_iteration() -> None:
    before, after = (ropes(one)[0].kernel for one in (program(), distributed(program())))
    assert verify(after) == []
    tables = [one.buffer.shape for one in after.body if isinstance(one, Alloc)]
    assert tables.count((5, 4)) == 2
    angles, rotated = (one for one in after.body if isinstance(one, For) and one.kind is LoopKind.PARALLEL)
    assert nested(rotated)[:1] == [5]
    assert (len(angles.body), angles.body[0].kind) == (1, LoopKind.PARALLEL)  # type: ignore[union-attr]
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(3, 5, 8)).astype(np.float32), np.array([0, 7, 3, 1000, 2], np.int32)]
    (one,), (other,) = interpret(before, arrays), interpret(after, arrays)
    assert one.tobytes() == other.tobytes()


def test_scratch_memory_of_a_call_is_as_large_as_its_tables() -> None:
    for step in ropes(distributed(program())):
        assert [one.shape for one in step.scratch] == [one.shape for one in step.kernel.scratch]


def test_a_table_that_is_the_same_in_every_iteration_is_computed_once_for_all_that_read_it() -> None:
    steps = hoisted(distributed(program())).blocks["entry"]
    (loop,) = (one for one in steps if isinstance(one, LoopStep))
    once = [one for one in steps if isinstance(one, KernelStep) and one.kernel.name == "rope_once"]
    assert [[value.shape for value in one.outputs] for one in once] == [[(5, 4), (5, 4)]]
    inside = [one for one in steps_in(loop.body) if isinstance(one, KernelStep) and one.kernel.name == "rope"]
    assert [len(one.inputs) for one in inside] == [3, 3], "what is rotated, and both tables"


def test_a_table_is_as_long_as_a_dynamic_size_says() -> None:
    text = (
        TEXT.replace("dynamic {", "sizes { T <= 9; } dynamic {").replace("5, 8]", "T, 8]").replace("i32[5]", "i32[T]")
    )
    (step, _) = ropes(distributed(lowered(bind(graph(text), None, {}), frozenset())))
    tables = [one.buffer.shape for one in step.kernel.body if isinstance(one, Alloc)]
    assert [str(shape) for shape in tables].count("(T, 4)") == 2
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(3, 2, 8)).astype(np.float32), np.array([0, 7], np.int32)]
    before = ropes(lowered(bind(graph(text), None, {}), frozenset()))[0].kernel
    (one,), (other,) = (interpret(kernel, arrays, {"T": 2}) for kernel in (before, step.kernel))
    assert one.tobytes() == other.tobytes()
