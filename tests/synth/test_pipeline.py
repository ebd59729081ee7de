"""The pipeline: its steps in their order, what each makes of a program as text, and programs that are none."""

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from openinfer import Code, DeviceArch, ModelLoader, graph
from openinfer.dtypes import dtype_of
from openinfer.errors import GraphError
from openinfer.loops import ir as loops_ir
from openinfer.loops.ir import Let, ScalarVar
from openinfer.oinf import save_file
from openinfer.synth.lower.graph import lowered
from openinfer.synth.passes.fuse.fuse import Fuse
from openinfer.synth.pipeline import Stage, Synthesizer, stage_called
from openinfer.synth.program import ir as program_ir
from openinfer.synth.program.ir import BranchStep, CallStep, KernelStep, LoopStep, Move, Program, Step, Storage, Value
from openinfer.synth.program.verify import InvariantError, Verifier
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import NODE_BY_NODE, Passes

SOURCE = """
dynamic { x: f32[2, 3]; }
volatile { y: f32[2, 3]; z: f32[2, 3]; }
persistent { n: i32 @init(0); K(t): f32[2, 3] @table @fixed(t=8); }
block entry {
    assign a: f32[2, 3];
    op neg(x) >> a;
    op exp(a) >> y;
    op neg(x) >> a;
    op exp(a) >> a;
    loop twice (i in 0..2) { op add(y, a) >> y; }
    cache.write y >> K[n];
    barrier;
    op abs(y) >> z;
    cache.increment n;
    return y;
}
"""
MEMORY = """\
input x = t1: f32[2, 3]
state n = t2: i32[]
arena y = t7: f32[2, 3]
table K = f32[2, 3] x (8)
output y = t7
"""
DECOMPOSED = """
block entry {
    t3: f32[2, 3] = k0 neg(t1)  # 1
    t4: f32[2, 3] = k1 exp(t3)  # 2
    t5: f32[2, 3] = k0 neg(t1)  # 3
    t6: f32[2, 3] = k1 exp(t5)  # 4
    t7: f32[2, 3] = t4  # 5
    loop twice i in 0..2 {  # 5
        t8: f32[2, 3] = k2 add(t7, t6)  # 6
        t7: f32[2, 3] = t8  # 5
    }
    K[n] = t7  # 7
    fence  # 8
    t9: f32[2, 3] = k3 abs(t7)  # 9
    t10: i32[] = k4 count(t2)  # 10
    t2: i32[] = t10
}
"""
SIMPLIFIED = """
block entry {
    t3: f32[2, 3] = k0 neg(t1)  # 1
    t4: f32[2, 3] = k1 exp(t3)  # 2
    t7: f32[2, 3] = t4  # 5
    loop twice i in 0..2 {  # 5
        t8: f32[2, 3] = k2 add(t7, t4)  # 6
        t7: f32[2, 3] = t8  # 5
    }
    K[n] = t7  # 7
    fence  # 8
    t10: i32[] = k3 count(t2)  # 10
    t2: i32[] = t10
}
"""
FUSED = """
block entry {
    t4: f32[2, 3] = k0 neg_exp(t1)  # 1, 2
    t7: f32[2, 3] = t4  # 5
    loop twice i in 0..2 {  # 5
        t8: f32[2, 3] = k1 add(t7, t4)  # 6
        t7: f32[2, 3] = t8  # 5
    }
    K[n] = t7  # 7
    fence  # 8
    t10: i32[] = k2 count(t2)  # 10
    t2: i32[] = t10
}

k0 = neg_exp(x: f32[2, 3]) -> y: f32[2, 3] {
    parallel i1 < 2 {
        parallel i2 < 3 {
            let v3: f32 = x[i1, i2]
            y[i1, i2] = exp(neg(v3))
        }
    }
}

k1 = add(a: f32[2, 3], b: f32[2, 3]) -> y: f32[2, 3] {
    parallel i1 < 2 {
        parallel i2 < 3 {
            let v3: f32 = a[i1, i2]
            let v4: f32 = b[i1, i2]
            y[i1, i2] = (v3 + v4)
        }
    }
}

k2 = count(x: i32[]) -> y: i32[] {
    y[] = (x[] + 1:i32)
}
"""


def texts(text: str = SOURCE, **options: Any) -> dict[str, str]:
    pipeline = Synthesizer("generic", **options).pipeline(None, graph(text))
    return {reached.stage.value: reached.text() for reached in pipeline}


def without_kernels(text: str) -> str:
    return text.split("\n\nk0 = ", maxsplit=1)[0] + "\n"


def test_each_step_shows_what_it_made() -> None:
    found = texts()
    assert list(found) == ["bind", "decompose", "simplify", "fuse", "schedule", "place", "emit"]
    assert found["bind"].startswith("dynamic x: f32[2, 3] from the caller\n")
    assert found["bind"].endswith(graph(SOURCE).to_text())
    assert without_kernels(found["decompose"]) == MEMORY + DECOMPOSED
    assert without_kernels(found["simplify"]) == MEMORY + SIMPLIFIED
    assert found["fuse"] == MEMORY + FUSED
    assert found["schedule"] == found["fuse"]  # there is no contraction in it
    assert found["place"].startswith("arena: ")
    assert "src/model.c " in found["emit"]


ALL_PASSES = """
dynamic { x: f32[32, 64]; }
constant { w: f32[64, 48]; b: f32[48]; }
volatile { y: f32[32, 48]; z: f32[32, 48]; }
persistent { K(t): f32[32, 48] @table @fixed(t=2); n: i32 @init(0); }
block entry {
    assign h: f32[32, 48];
    assign unused: f32[32, 48];
    op matmul(x, w) >> h;
    op add(h, b) >> h;
    op exp(h) >> unused;
    op matmul(x, w) >> z;
    loop twice (i in 0..2) { op add(h, b) >> h; op relu(h) >> h; }
    cache.write h >> K[n];
    cache.read K[n] >> unused;
    op relu(h) >> y;
    return y, z;
}
"""


def test_every_step_shows_what_it_made_also_when_the_pipeline_is_through(tmp_path: Path) -> None:
    """A pass makes another program: those before it stay what they were."""
    save_file(tmp_path / "m.oinf", {"w": np.ones((64, 48), np.float32), "b": np.ones(48, np.float32)})
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        synthesizer = Synthesizer("generic", passes=Passes(divide=Divide(2, 0.0)))
        in_time = [reached.text() for reached in synthesizer.pipeline(model, graph(ALL_PASSES))]
        afterwards = [reached.text() for reached in list(synthesizer.pipeline(model, graph(ALL_PASSES)))]
    assert afterwards == in_time
    assert len(set(in_time)) == len(in_time), "a pass that changes nothing shows nothing"


def test_nothing_of_a_program_can_be_changed() -> None:
    one = Synthesizer("generic").synthesize(None, graph(SOURCE)).project.program
    parts = [one, *one.homes.values(), *one.tables.values(), *one.steps()]
    for part in parts:
        for name in (each.name for each in fields(part)):
            with pytest.raises(FrozenInstanceError):
                setattr(part, name, None)
            assert not isinstance(getattr(part, name), list | dict | set), (part, name)
    with pytest.raises(TypeError):
        one.blocks["entry"] = ()  # type: ignore[index]


@pytest.mark.parametrize("module", [loops_ir, program_ir], ids=lambda module: module.__name__)
def test_every_record_of_programs_and_kernels_is_frozen(module: ModuleType) -> None:
    """Also those that the graph above has no example of."""
    records = [one for one in vars(module).values() if isinstance(one, type) and is_dataclass(one)]
    assert len(records) > 8
    for record in records:
        assert record.__dataclass_params__.frozen, record  # type: ignore[attr-defined]
        for each in fields(record):
            assert not re.search(r"\b(list|dict|set)\b", str(each.type)), (record, each.name, each.type)


def test_what_a_pass_leaves_alone_is_the_same_object() -> None:
    one = Synthesizer("generic").synthesize(None, graph(SOURCE)).project.program
    again = one.map_kernels(lambda step: (step,))
    assert all(before is after for before, after in zip(one.steps(), again.steps(), strict=True))


def test_a_call_inside_a_loop_can_become_several_or_none() -> None:
    one = Synthesizer("generic").synthesize(None, graph(SOURCE)).project.program

    def calls(changed: Program) -> list[tuple[str, int]]:
        every = changed.blocks["entry"]
        bodies = [(step.name, step.body) for step in every if isinstance(step, LoopStep)]
        return [(name, sum(isinstance(step, KernelStep) for step in body)) for name, body in (("", every), *bodies)]

    assert calls(one) == [("", 2), ("twice", 1)]
    assert calls(one.map_kernels(lambda step: (step, step))) == [("", 4), ("twice", 2)]
    assert calls(one.map_kernels(lambda _: ())) == [("", 0), ("twice", 0)]
    assert calls(one) == [("", 2), ("twice", 1)]


def test_steps_that_are_off_change_nothing() -> None:
    found = texts(passes=Passes(simplify=None, fuse=None))
    assert found["fuse"] == found["decompose"]
    assert texts(passes=NODE_BY_NODE)["fuse"] == found["decompose"]
    assert texts(passes=Passes(simplify=None))["fuse"] != found["decompose"]


def test_tiles_and_packed_weights_are_seen_after_schedule_only() -> None:
    text = """dynamic { a: f32[32, 64]; b: f32[64, 48]; } volatile { y: f32[32, 48]; }
    block entry { op matmul(a, b) >> y; return y; }"""
    found = texts(text)
    assert "in tiles of" not in found["fuse"]
    assert "in tiles of" in found["schedule"]
    assert texts(text, passes=Passes(schedule=False))["schedule"] == found["fuse"]


def test_the_pipeline_can_be_left_anywhere() -> None:
    for reached in Synthesizer("generic").pipeline(None, graph(SOURCE)):
        if reached.stage is Stage.SIMPLIFY:
            break
    assert reached.plan is None
    assert without_kernels(reached.text()) == MEMORY + SIMPLIFIED


def test_a_step_that_does_not_exist_is_an_error_that_lists_the_steps() -> None:
    with pytest.raises(GraphError) as caught:
        stage_called("fusee")
    assert caught.value.code is Code.UNKNOWN_STAGE
    assert "did you mean 'fuse'?" in str(caught.value)
    assert "bind, decompose, simplify, fuse, schedule, place, emit" in str(caught.value)


def test_a_devices_preferences_decide_where_no_passes_are_given() -> None:
    def kernels(preferences: dict[str, Any], **options: Any) -> int:
        arch = DeviceArch.from_json({"device": {"type": "cpu"}, "preferences": preferences})
        return len(Synthesizer(arch, **options).synthesize(None, graph(SOURCE)).facts()["kernels"])

    assert kernels({}) == 3
    assert kernels({"prefer_fusion": False}) == 7
    assert kernels({"max_kernel_ops": 1}) == 4
    assert kernels({"prefer_fusion": False}, passes=Passes()) == 3
    assert kernels({"max_kernel_ops": 1}, passes=Passes(fuse=Fuse())) == 3


def test_blocks_that_nothing_runs_are_no_part_of_the_program() -> None:
    text = """dynamic { x: f32[4]; } volatile { y: f32[4]; }
    block entry { op neg(x) >> y; branch used; return y; }
    block used { branch deeper; return; }
    block deeper { op abs(y) >> y; return; }
    block unused { op exp(y) >> y; branch unused_too; return; }
    block unused_too { return; }"""
    found = texts(text)["decompose"]
    assert [line.split()[1] for line in found.splitlines() if line.startswith("block ")] == ["entry", "used", "deeper"]


# --- programs that are none -------------------------------------------------------------------------------------------


def program() -> Program:
    from openinfer.check import bind

    text = """dynamic { x: f32[4]; } volatile { y: f32[4]; }
    block entry { assign a: f32[4]; op neg(x) >> a; op exp(a) >> y; return y; }"""
    return lowered(bind(graph(text), None, None))


def kernel_steps(one: Program) -> tuple[KernelStep, KernelStep]:
    first, second = (step for step in one.blocks["entry"] if isinstance(step, KernelStep))
    return first, second


def with_second(one: Program, **fields: Any) -> Program:
    second = kernel_steps(one)[1]
    return one.map_kernels(lambda step: (replace(step, **fields) if step is second else step,))


def with_first(one: Program, **fields: Any) -> Program:
    first = kernel_steps(one)[0]
    return one.map_kernels(lambda step: (replace(step, **fields) if step is first else step,))


def with_entry(one: Program, *steps: Step) -> Program:
    return replace(one, blocks={"entry": steps})


def with_last(one: Program, step: Step) -> Program:
    return with_entry(one, *one.blocks["entry"], step)


def stray(one: Program) -> Program:
    return with_second(one, inputs=(Value("t99", dtype_of("f32"), (4,)),))


def reversed_steps(one: Program) -> Program:
    return with_entry(one, *reversed(one.blocks["entry"]))


def other_shape(one: Program) -> Program:
    return with_second(one, outputs=(replace(kernel_steps(one)[1].outputs[0], shape=(5,)),))


def other_dtype(one: Program) -> Program:
    return with_second(one, outputs=(replace(kernel_steps(one)[1].outputs[0], dtype=dtype_of("i32")),))


def too_few(one: Program) -> Program:
    return with_first(one, inputs=())


def written_twice(one: Program) -> Program:
    return with_last(one, kernel_steps(one)[0])


def input_written(one: Program) -> Program:
    first, _ = kernel_steps(one)
    return with_last(one, Move(first.outputs[0], one.inputs["x"], 0))


def moved_types(one: Program) -> Program:
    home = Value("t98", dtype_of("i32"), (4,), Storage.ARENA, is_home=True)
    return with_last(one, Move(kernel_steps(one)[0].outputs[0], home, 0))


def unknown_block(one: Program) -> Program:
    return with_last(one, BranchStep(None, "nowhere", None, 0))


def unknown_consumer(one: Program) -> Program:
    return with_last(one, CallStep("nobody", 0))


def lost_output(one: Program) -> Program:
    second = kernel_steps(one)[1]
    return one.map_kernels(lambda step: () if step is second else (step,))


def unsound_kernel(one: Program) -> Program:
    kernel = kernel_steps(one)[0].kernel
    return with_first(one, kernel=replace(kernel, body=(*kernel.body, Let(ScalarVar("v"), ScalarVar("w")))))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (stray, "t99 is read before it is written"),
        (reversed_steps, "is read before it is written"),
        (other_shape, "kernel exp wants f32[4] as output y"),
        (other_dtype, "kernel exp wants f32[4] as output y"),
        (too_few, "kernel neg has 1 inputs and gets 0"),
        (written_twice, "is written twice"),
        (input_written, "is written, which is the caller's or the model's"),
        (moved_types, "a move from f32 to t98, which is i32"),
        (unknown_block, "a branch to 'nowhere', which is not a block"),
        (unknown_consumer, "a call of 'nobody', which is not a block"),
        (lost_output, "the output 'y' is"),
        (unsound_kernel, "kernel neg: 'w' is used where it is not defined"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_program_that_is_none_does_not_get_past_the_verifier(spoil: Callable[[Program], Program], said: str) -> None:
    one = program()
    Verifier().verified(one, "decompose")
    with pytest.raises(InvariantError, match=r"^after fuse: ") as caught:
        Verifier().verified(spoil(one), "fuse")
    assert said in str(caught.value)


def test_a_pass_that_spoils_a_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(_self: Fuse, one: Program) -> tuple[Program, list[Any]]:
        return stray(one), []

    monkeypatch.setattr(Fuse, "run", spoiled)
    text = """dynamic { x: f32[4]; } volatile { y: f32[4]; }
    block entry { assign a: f32[4]; op neg(x) >> a; op exp(a) >> y; return y; }"""
    with pytest.raises(InvariantError, match="after fuse: t99"):
        Synthesizer("generic").synthesize(None, graph(text))
