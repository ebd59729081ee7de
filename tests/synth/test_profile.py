"""Profiles: their arithmetic on made-up times, and what is counted when compiled steps run under a clock."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.everything import some
from tests.synth.both_ways import planned
from tests.synth.small_models import SMALL_MODELS

from openinfer import Code, DeviceArch, ModelLoader, Synthesizer, graph
from openinfer.errors import ExecutionError
from openinfer.oinf import save_file
from openinfer.synth.plan import Plan
from openinfer.synth.program.cost import Cost, cost_of
from openinfer.synth.program.ir import KernelStep, steps_in
from openinfer.synth.report.profile import KernelProfile, NodePlace, Profile, Times, joined
from openinfer.synth.report.roofline import Roofline
from openinfer.synth.run.roofline import measured_roofline
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.machine import cpu_machine
from openinfer.synth.targets.target import NODE_BY_NODE, Passes

ROOFLINE = Roofline(operations=1e9, bandwidth=2e9, threads=2, nbytes=4096)
BRANCHES = """
dynamic { x: f32[4]; go: bool; }
volatile { y: f32[4]; }
block entry {
    op add(x, x) >> y;
    branch go yes no;
    return y;
}
block yes { loop twice (i in 0..2) { op mul(y, x) >> y; } return; }
block no { op sub(y, x) >> y; return; }
"""
FULL = """
dynamic { x: f32[4]; }
persistent { n: i32 @init(0); K(t): f32[4] @table @fixed(t=2); }
block entry {
    cache.write x >> K[n];
    cache.increment n;
    return;
}
"""
COUNTED = """
dynamic { x: f32[4]; }
volatile { y: f32[4]; }
persistent { n: i32 @init(1); }
block entry {
    assign h: f32[4];
    op add(x, x) >> h;
    loop some (i in 0..n) { op mul(h, h) >> h; }
    op neg(h) >> y;
    cache.increment n;
    return y;
}
"""
SIZED = """
sizes { T <= 40; }
dynamic { x: f32[T, 24]; }
constant { w: f32[24, 50]; }
volatile { y: f32[T, 50]; }
block entry {
    op matmul(x, w) >> y;
    op softmax(y) >> y;
    return y;
}
"""


@pytest.fixture(autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path_factory.getbasetemp() / "profiled"))


def made(
    name: str, times: tuple[float, ...], cost: Cost, calls: int = 1, node: int = 0, threads: int = 1
) -> KernelProfile:
    places = (NodePlace(node, f"op {name}(x) >> y", node + 10),)
    return KernelProfile(name, places, calls, threads, cost, Times(times), tuple(one / 1e-2 for one in times), ROOFLINE)


def profile_of(*calls: KernelProfile) -> Profile:
    steps = len(calls[0].times.all) if calls else 1
    return Profile(
        "net", "mine", "generic", ROOFLINE, calls, calls, Times((1e-2,) * steps), Times((8e-3,) * steps), False
    )


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_what_the_clock_costs_is_told_by_steps_that_follow_each_other() -> None:
    """The machine was slow for a while, and both kinds of steps with it."""
    timed, untimed = Times((1.1, 2.2, 4.4, 1.1)), Times((1.0, 2.0, 4.0, 2.0))
    assert Profile("net", "mine", "generic", ROOFLINE, (), (), timed, untimed, False).overhead == pytest.approx(0.1)


def test_times_have_a_median_a_middle_half_and_a_least() -> None:
    times = Times((5.0, 1.0, 2.0, 4.0, 3.0))
    assert (times.median, times.middle, times.least) == (3.0, (2.0, 4.0), 1.0)
    assert Times((7.0,)).facts() == {"median": 7.0, "quartiles": [7.0, 7.0], "least": 7.0, "all": [7.0]}


@pytest.mark.parametrize(
    ("cost", "bound", "least"), [(Cost(1000, 500, 500), "compute", 1e-6), (Cost(1000, 3000, 1000), "memory", 2e-6)]
)
def test_a_kernel_is_bound_by_what_takes_the_roofline_longer(cost: Cost, bound: str, least: float) -> None:
    one = made("k", (8e-6, 4e-6, 9e-6), cost)
    assert one.bound == bound
    assert one.seconds == 8e-6
    assert one.efficiency == pytest.approx(least / 8e-6)
    assert one.gain == pytest.approx(8e-6 - least)
    assert one.operations_per_second == pytest.approx(1000 / 8e-6)
    assert one.bytes_per_second == pytest.approx(cost.nbytes / 8e-6)


def test_a_kernel_above_its_roofline_has_nothing_to_gain() -> None:
    one = made("k", (1e-6,), Cost(4000, 0, 0))
    assert one.efficiency == pytest.approx(4.0)
    assert one.gain == 0.0


def test_a_kernel_that_is_never_called_has_no_speed() -> None:
    one = made("k", (0.0, 0.0), Cost(0, 0, 0), calls=0)
    assert (one.operations_per_second, one.bytes_per_second, one.efficiency, one.gain) == (0.0, 0.0, 0.0, 0.0)


def test_calls_of_one_kernel_are_added_up_step_by_step() -> None:
    one = made("k", (1e-3, 5e-3), Cost(10, 4, 2), calls=2, node=3)
    other = made("k", (2e-3, 1e-3), Cost(20, 8, 4), calls=1, node=1)
    both = joined([one, other])
    assert both.times.all == pytest.approx((3e-3, 6e-3))
    assert both.shares == pytest.approx((0.3, 0.6))
    assert both.share == pytest.approx(0.45)
    assert (both.calls, both.cost) == (3, Cost(30, 12, 6))
    assert [node.index for node in both.nodes] == [1, 3]


def test_the_first_to_look_at_is_where_most_can_be_gained_not_what_takes_longest() -> None:
    longest = made("long", (6e-3,), Cost(5_900_000, 0, 0))
    wasteful = made("wasteful", (2e-3,), Cost(1000, 0, 0), node=1)
    profile = profile_of(longest, wasteful)
    assert profile.first is wasteful
    assert profile.between == pytest.approx(2e-3)
    assert profile.overhead == pytest.approx(0.25)
    assert profile.facts()["first"] == "wasteful"


def test_where_every_kernel_is_at_its_roofline_there_is_none_to_look_at() -> None:
    assert profile_of(made("k", (1e-3,), Cost(2_000_000, 0, 0))).first is None
    assert profile_of().first is None
    assert profile_of().between == 1e-2


def test_costs_follow_the_sizes_that_a_step_has(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.ones((24, 50), np.float32)})
    model = ModelLoader.open(tmp_path / "m.oinf")
    plain = Passes(fuse=None, schedule=False)
    dynamic = list(kernels_of(Synthesizer("generic", passes=plain).synthesize(model, graph(SIZED))))
    settled = kernels_of(Synthesizer("generic", passes=plain).synthesize(model, graph(SIZED), sizes={"T": 7}))
    for step, fixed in zip(dynamic, settled, strict=True):
        assert cost_of(step.kernel, {"T": 7}) == cost_of(fixed.kernel)
        assert cost_of(step.kernel, {"T": 40}) == cost_of(step.kernel)
    assert cost_of(dynamic[0].kernel, {"T": 7}).operations == 7 * 24 * 50 * 2


def kernels_of(plan: Plan) -> Iterator[KernelStep]:
    for steps in plan.project.program.blocks.values():
        yield from (step for step in steps_in(steps) if isinstance(step, KernelStep))


def test_the_best_of_two_rooflines_is_the_best_of_each() -> None:
    other = Roofline(operations=5e8, bandwidth=3e9, threads=2, nbytes=4096)
    assert ROOFLINE.best(other) == other.best(ROOFLINE) == Roofline(1e9, 3e9, 2, 4096)


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_the_roofline_is_measured_with_the_threads_and_bytes_that_a_plan_has(cc: str) -> None:
    found = measured_roofline(cpu_machine(DeviceArch.named("generic")), (), cc, threads=2, nbytes=100_000)
    assert (found.threads, found.nbytes) == (2, 98_304)
    assert found.operations > 0
    assert found.bandwidth > 0


# --- compiled steps ---------------------------------------------------------------------------------------------------


def check(plan: Plan, profile: Profile) -> None:
    """Everything that the plan says is there, as often as it says, and in no more time than the step had."""
    facts = plan.facts()
    assert sorted(one.name for one in profile.kernels) == sorted(one["name"] for one in facts["functions"])
    wanted = [(tuple(node["index"] for node in one["nodes"]), one["calls"]) for one in facts["kernels"]]
    found = [(tuple(node.index for node in one.nodes), one.calls) for one in profile.calls]
    # A variable of a size that has no value yet is not filled.
    unfilled = [one for one in found if one[1] == 0 and is_fill(plan, one[0])]
    assert sorted(wanted) == sorted((nodes, 1 if (nodes, calls) in unfilled else calls) for nodes, calls in found)
    for kernels in (profile.kernels, profile.calls):
        for number, whole in enumerate(profile.timed.all):
            assert 0 < sum(one.times.all[number] for one in kernels) <= whole
        assert all(min(one.times.all) > 0 for one in kernels if one.calls)
    assert profile.between >= 0


def is_fill(plan: Plan, nodes: tuple[int, ...]) -> bool:
    return any(step.kernel.name == "fill" and step.node in nodes for step in kernels_of(plan))


@pytest.mark.parametrize(("name", "device"), some(product(SMALL_MODELS, ["generic", "cpu"]), 3))
def test_every_kernel_of_a_plan_is_timed(tmp_path: Path, name: str, device: str) -> None:
    small = SMALL_MODELS[name]
    plan = planned(small.text, small.saved(tmp_path), device)
    seen: list[float] = []
    profile = plan.profile(small.inputs(np.random.default_rng(3)), steps=3, warmup=1, after_step=seen.append)
    check(plan, profile)
    assert len(profile.timed.all) == len(profile.untimed.all) == 3
    assert seen[1::2] == list(profile.untimed.all)
    assert seen[2::2] == list(profile.timed.all)
    assert profile.restores_state == (name == "decoder")


def test_calls_that_share_a_function_are_apart_by_node_and_one_by_kernel(tmp_path: Path) -> None:
    small = SMALL_MODELS["decoder"]
    plan = planned(small.text, small.saved(tmp_path), "generic", passes=NODE_BY_NODE)
    profile = plan.profile(small.inputs(np.random.default_rng(3)), steps=2, warmup=0)
    check(plan, profile)
    products = [one for one in profile.calls if any("op matmul" in node.text for node in one.nodes)]
    assert [one.calls for one in products] == [2, 2, 2, 2]
    (shared,) = [one for one in profile.kernels if one.name == products[0].name]
    assert shared.calls == 2 * len([one for one in products if one.name == shared.name]) > 2


@pytest.mark.parametrize(("go", "calls"), [(True, [1, 2, 0]), (False, [1, 0, 1])])
def test_only_what_runs_is_counted(go: bool, calls: list[int]) -> None:
    plan = planned(BRANCHES, None, "generic")
    profile = plan.profile({"x": np.ones(4, np.float32), "go": go}, steps=2, warmup=0)
    assert {one.nodes[0].text.split("(")[0]: one.calls for one in profile.calls} == dict(
        zip(("op add", "op mul", "op sub"), calls, strict=True)
    )
    assert [one.times.median > 0 for one in profile.calls] == [count > 0 for count in calls]
    assert [one.cost.operations for one in profile.calls] == [4 * count for count in calls]


def test_kernels_that_run_in_parts_are_timed_as_a_whole(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.ones((24, 150), np.float32)})
    wide = SIZED.replace("50", "150")
    plan = planned(wide, ModelLoader.open(tmp_path / "m.oinf"), passes=Passes(divide=Divide(2, worth=0.0)))
    profile = plan.profile({"x": np.ones((30, 24), np.float32)}, steps=2, warmup=0)
    check(plan, profile)
    assert profile.roofline.threads == 2
    assert {one.threads for one in profile.kernels} == {2}
    assert profile.calls[0].cost.operations == 30 * 24 * 150 * 2


def test_clang_compiles_it_too(tmp_path: Path) -> None:
    small = SMALL_MODELS["decoder"]
    plan = planned(small.text, small.saved(tmp_path))
    check(plan, plan.profile(small.inputs(np.random.default_rng(3)), steps=1, warmup=0, cc="clang"))


def test_the_state_is_put_back_before_every_step() -> None:
    """The table has room for two steps."""
    profile = planned(FULL).profile({"x": np.ones(4, np.float32)}, steps=3, warmup=2)
    assert profile.restores_state
    assert {one.calls for one in profile.calls} == {1}


def test_steps_can_begin_with_a_saved_state() -> None:
    plan = planned(COUNTED, None, "generic")
    inputs = {"x": np.ones(4, np.float32)}
    module = plan.build()
    for _ in range(4):
        module.insert(inputs)
        module.run_step()
    state = module.save_state()
    assert isinstance(state, bytes)

    def products(given: Any) -> int:
        found = plan.profile(inputs, steps=2, warmup=0, state=given).calls
        return next(one.calls for one in found if "op mul" in one.nodes[0].text)

    assert (products(None), products(state)) == (1, 5)


def test_a_graph_without_kernels_has_a_profile() -> None:
    profile = planned("persistent { n: i32[4] @init(0); } block entry { return; }").profile(steps=2, warmup=0)
    assert (profile.kernels, profile.first) == ((), None)
    assert profile.facts()["kernels"] == []


def test_a_step_that_fails_is_an_error(tmp_path: Path) -> None:
    small = SMALL_MODELS["decoder"]
    plan = planned(small.text, small.saved(tmp_path), "generic")
    for inputs, code in (
        ({"token": 99}, Code.BAD_VALUE),
        ({}, Code.NOT_INSERTED),
        ({"tokn": 1}, Code.UNKNOWN_VARIABLE),
    ):
        with pytest.raises(ExecutionError) as caught:
            plan.profile(inputs, steps=1, warmup=0)
        assert caught.value.diagnostics[0].code is code


@pytest.mark.parametrize(("steps", "warmup"), [(0, 0), (1, -1), (True, 0), (2.5, 0)])
def test_there_is_at_least_one_step_to_time(steps: Any, warmup: int) -> None:
    with pytest.raises(ExecutionError) as caught:
        planned(BRANCHES).profile({}, steps=steps, warmup=warmup)
    assert caught.value.diagnostics[0].code is Code.BAD_VALUE


def test_the_code_of_projects_knows_nothing_of_clocks() -> None:
    code = planned(BRANCHES).project.code()
    assert not any("timed" in text for text in code.values())
    # Only what asks whether a long step is to end looks at the time; kernels never do.
    assert not any(word in code["src/kernels.c"] for word in ("clock", "<time.h>"))
