"""Tiles chosen by measuring. Times are made up: nothing here depends on how fast a machine is."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import planned
from tests.synth.scheduled_in_c import kernel_for, run
from tests.synth.test_contraction import near

from openinfer import DeviceArch, ModelLoader, graph
from openinfer.loops.ir import Contraction, walk
from openinfer.loops.text import kernel_text
from openinfer.loops.verify import verify
from openinfer.oinf import save_file
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import Program, Weight
from openinfer.synth.targets.cpu import schedule
from openinfer.synth.targets.cpu.choices import Choice, ChooseTile, ProductShape
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.machine import AVX512, CpuMachine, runnable
from openinfer.synth.targets.cpu.schedule import scheduled
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.target import Passes
from openinfer.synth.tuning.race import Race, calls_in, raced
from openinfer.synth.tuning.records import Processor, Record, Tuned, possible_tiles
from openinfer.synth.tuning.tune import Tune, candidates, joined

TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.isa)
TWO = """
dynamic { x: f32[40, 64]; }
constant { v: f32[64, 96]; w: f32[96, 64]; u: f32[64, 96]; }
volatile { h: f32[40, 96]; g: f32[40, 64]; y: f32[40, 96]; }
block entry {
    op matmul(x, v) >> h;
    op matmul(h, w) >> g;
    op matmul(g, u) >> y;
    op relu(y) >> y;
    return y;
}
"""
LAYERS = """
sizes { T <= 8; }
dynamic { x: f32[4, 32]; z: f32[T, 32]; }
constant { W(l): f32[32, 32] @pattern("W.{l}"); }
volatile { y: f32[4, 32]; t: f32[T, 32]; }
block entry {
    assign h: f32[4, 32];
    op relu(x) >> h;
    loop layers (l in 0..3) { op matmul(h, W[l]) >> h; }
    op relu(h) >> y;
    op matmul(z, W[0]) >> t;
    return y, t;
}
"""


@pytest.fixture(autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path_factory.getbasetemp() / "tuned"))


@pytest.fixture
def model(tmp_path: Path) -> ModelLoader:
    rng = np.random.default_rng(1)
    shapes = {"v": (64, 96), "w": (96, 64), "u": (64, 96)} | {f"W.{layer}": (32, 32) for layer in range(3)}
    save_file(tmp_path / "m.oinf", {name: rng.normal(size=one).astype(np.float32) for name, one in shapes.items()})
    return ModelLoader.open(tmp_path / "m.oinf")


def tiles(race: Race) -> list[CpuTile]:
    """The tile of each candidate."""
    calls = race.project.kernels.calls
    return [tile_of(calls[places[0]][0].kernel.body) for places in race.counted]


def tile_of(body: Any) -> CpuTile:
    return next(
        one.template for one in walk(body) if isinstance(one, Contraction) and isinstance(one.template, CpuTile)
    )


class Watch:
    """A measure that makes times up from tiles, and remembers what it was asked."""

    def __init__(self, *speeds: Callable[[CpuTile], Sequence[float]]) -> None:
        self.speeds = speeds
        self.races: list[Race] = []

    def __call__(self, race: Race, _seconds: float) -> Sequence[Sequence[float]]:
        speed = self.speeds[len(self.races) % len(self.speeds)]
        self.races.append(race)
        return [list(times) for times in zip(*(speed(tile) for tile in tiles(race)), strict=True)]


def steady(fast: tuple[int, int], seconds: float) -> Callable[[CpuTile], Sequence[float]]:
    """One tile takes so long, all others a second."""
    return lambda tile: [seconds if (tile.rows, tile.columns) == fast else 1.0] * 4


def tuned_with(measure: Watch, model: ModelLoader, text: str = TWO, **passes: Any) -> tuple[list[Record], Plan]:
    found: list[Record] = []
    tune = Tune(0.0, measure, lambda _done, _total, record: found.append(record))
    return found, planned(text, model, "x86-avx512", passes=Passes(tune=tune, **passes))


def program_of(text: str, model: ModelLoader) -> Program:
    return planned(text, model, "x86-avx512", passes=Passes(schedule=False)).project.program


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_the_fastest_tile_is_chosen_and_used(model: ModelLoader) -> None:
    watch = Watch(steady((5, 64), 0.8))
    found, plan = tuned_with(watch, model, divide=Divide(1))
    first, second = (record.choice for record in found)
    assert first is not None
    assert (first.rows, first.vectors, first.gain) == (5, 4, 1.25)
    assert second is not None
    assert [one["tiles"][0] for one in plan.facts()["kernels"]] == [
        {"rows": 5, "columns": 64, "divided": None, "chosen_by": "measurement", "gain": 1.25}
    ] * 3


def test_products_of_one_shape_are_measured_together(model: ModelLoader) -> None:
    watch = Watch(steady((5, 64), 0.8))
    found, _ = tuned_with(watch, model)
    assert [(one.product.columns, one.product.inner) for one in found] == [(96, 64), (64, 96)]
    assert {len(places) for places in watch.races[0].counted} == {2}


@pytest.mark.parametrize(
    "speeds",
    [
        pytest.param([steady((5, 64), 0.98)], id="no more than noise"),
        pytest.param([steady((5, 64), 0.5), steady((5, 64), 1.1)], id="lucky the first time"),
        pytest.param([lambda tile: [0.1, 0.1, 1.5, 1.5] if tile.rows == 5 else [1.0] * 4], id="lucky half of the time"),
        pytest.param([lambda tile: [2.0] * 4 if tile.rows == 5 else [1.0] * 4], id="slower"),
    ],
)
def test_the_rule_stays_where_nothing_is_certainly_better(speeds: list[Any], model: ModelLoader) -> None:
    found, plan = tuned_with(Watch(*speeds), model, divide=Divide(1))
    assert [record.choice for record in found] == [None, None]
    by_rule = planned(TWO, model, "x86-avx512", passes=Passes(tuned=Tuned(), divide=Divide(1)))
    assert plan.project.code() == by_rule.project.code()


def test_what_is_known_is_not_measured_again(model: ModelLoader) -> None:
    found, _ = tuned_with(Watch(steady((5, 64), 0.8)), model)
    watch = Watch(steady((5, 64), 0.8))
    again, _ = tuned_with(watch, model, tuned=Tuned(records=tuple(found)))
    assert (again, watch.races) == ([], [])


def test_each_weight_of_a_loop_is_a_call_and_dynamic_sizes_are_left_alone(model: ModelLoader) -> None:
    program = program_of(LAYERS, model)
    calls = [call for call in calls_in(program) if any(isinstance(one, Weight) for one in call.inputs)]
    assert [one.names for call in calls for one in call.inputs if isinstance(one, Weight)] == [
        ("W.0",),
        ("W.1",),
        ("W.2",),
    ]
    found, _ = tuned_with(Watch(steady((2, 32), 0.8)), model, LAYERS)
    assert [record.product.rows for record in found] == [4]


def test_a_processor_without_vectors_has_nothing_to_choose(model: ModelLoader) -> None:
    arch = DeviceArch.from_json(
        {"device": {"type": "cpu"}, "cpu": {"vector_bits": 0, "vector_registers": 0}, "features": {"hosted": True}}
    )
    watch = Watch(steady((1, 1), 0.5))
    Synthesizer(arch, passes=Passes(tune=Tune(0.0, watch))).synthesize(model, graph(TWO))
    assert watch.races == []


def test_candidates_differ_from_the_rule_and_from_each_other(model: ModelLoader) -> None:
    watch = Watch(steady((5, 64), 0.8))
    tuned_with(watch, model, divide=Divide(2))
    for race in watch.races:
        calls = race.project.kernels.calls
        kernels = [calls[places[0]][0].kernel for places in race.counted]
        assert all(one != other for place, one in enumerate(kernels) for other in kernels[:place])
        assert not [problem for kernel in kernels for problem in verify(kernel)]


def test_what_is_faster_by_itself_is_tried_together() -> None:
    shapes = [Choice(rows=8, vectors=3), Choice(rows=6, vectors=4)]
    copied, rows, columns = (
        shapes[0].model_copy(update=one) for one in ({"copies": True}, {"divided": "rows"}, {"divided": "columns"})
    )
    both = Choice(rows=6, vectors=4, copies=True, divided="columns")
    assert joined({shapes[0]: 1.0, shapes[1]: 0.9, copied: 0.95, rows: 0.9, columns: 0.8}) == [both]
    assert joined({shapes[0]: 1.0, shapes[1]: 0.9, copied: 1.0, rows: 1.1}) == []
    assert joined({copied: 0.5}) == []


# --- candidates -------------------------------------------------------------------------------------------------------


def shape(rows: int, columns: int, right: Any = "lies") -> ProductShape:
    return ProductShape(
        accumulator="f32", stored="f32", outside=1, rows=rows, columns=columns, inner=34, left="lies", right=right
    )


def test_candidates_are_possible_tiles_and_not_too_many() -> None:
    processor = Processor.of(AVX512, 2)
    for rows, columns, right in product((1, 3, 128), (1, 49, 1000), ("lies", "copied", "panels")):
        one = shape(rows, columns, right)
        found = candidates(one, processor)
        assert len(found) <= 14
        Tuned.from_json(Tuned(records=(Record(processor=processor, product=one, choice=found[-1]),)).to_text())
        assert {(choice.rows, choice.vectors) for choice in found} <= set(possible_tiles(one, processor))


def test_division_is_tried_where_one_kernel_shows_what_it_costs() -> None:
    def tried(right: Any, threads: int) -> set[Any]:
        return {choice.divided for choice in candidates(shape(9, 9, right), Processor.of(AVX512, threads))}

    assert tried("lies", 2) == tried("copied", 2) == {None, "rows", "columns"}
    assert tried("panels", 2) == tried("lies", 1) == {None}


def always(choice: Choice) -> ChooseTile:
    return lambda _shape: choice


@TARGETS
def test_every_possible_tile_computes_the_product(
    target: CpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_LEAST", 0)
    rng = np.random.default_rng(2)
    chosen, factors = [], []
    for m, n in ((13, 2 * target.lanes(32) + 3), (37, 70)):
        a, b = rng.normal(size=(m, 34)).astype(np.float32), rng.normal(size=(34, n)).astype(np.float32)
        for (rows, vectors), copies in product(possible_tiles(shape(m, n), Processor.of(target, 1)), (True, False)):
            choice = Choice(rows=rows, vectors=vectors, copies=copies)
            kernel, _ = scheduled(kernel_for("matmul", (m, 34), (34, n)), target, frozenset(), choose=always(choice))
            tile = tile_of(kernel.body)
            assert (tile.rows, tile.columns, tile.is_direct) == (rows, vectors * target.lanes(32), not copies)
            chosen.append((kernel, [a, b], (m, n)))
            factors.append((a, b))
    for found, (a, b) in zip(run(chosen, tmp_path, target), factors, strict=True):
        near(found, a, b)


def test_kernels_that_copy_and_that_do_not_are_not_one_function() -> None:
    """Both have memory for a panel, since the last one is incomplete."""
    kernels = [
        scheduled(
            kernel_for("matmul", (16, 64), (64, 50)),
            AVX512,
            frozenset(),
            choose=always(Choice(rows=4, vectors=2, copies=copies)),
        )[0]
        for copies in (True, False)
    ]
    assert kernel_text(kernels[0]) != kernel_text(kernels[1])


@pytest.mark.parametrize("divided", ["rows", "columns"])
def test_parts_have_shares_of_what_was_chosen(divided: Any, model: ModelLoader) -> None:
    found: list[Record] = []
    divide = Divide(2, worth=0.0)
    tune = Tune(0.0, Watch(steady((0, 0), 1.0)), lambda _done, _total, record: found.append(record))
    planned(TWO, model, passes=Passes(tune=tune, divide=divide))
    choice = Choice(rows=4, vectors=2, divided=divided)
    records = tuple(record.model_copy(update={"choice": choice}) for record in found)
    plan = planned(TWO, model, passes=Passes(tuned=Tuned(records=records), divide=divide))
    assert [one["tiles"][0]["divided"] for one in plan.facts()["kernels"]] == [divided] * 3
    module = plan.build()
    x = np.random.default_rng(3).normal(size=(40, 64)).astype(np.float32)
    module.insert(x=x)
    module.run_step()
    v, w, u = (model.load(name).to_numpy().astype(np.float64) for name in "vwu")
    wanted = np.maximum(x.astype(np.float64) @ v @ w @ u, 0)
    assert np.allclose(module.fetch("y"), wanted, rtol=1e-4, atol=1e-3)


# --- on this machine --------------------------------------------------------------------------------------------------


def test_a_race_runs_and_every_candidate_takes_its_time(model: ModelLoader) -> None:
    counts = []

    def measured(race: Race, _seconds: float) -> Sequence[Sequence[float]]:
        rounds = raced(race, 0.0)
        counts.append(({len(times) for times in rounds}, len(race.counted)))
        assert all(time > 0 for times in rounds for time in times)
        return rounds

    planned(TWO, model, passes=Passes(tune=Tune(0.0, measured)))
    assert counts
    assert all(found == {wanted} for found, wanted in counts)


def test_without_measuring_code_depends_on_shipped_records_alone(
    model: ModelLoader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, chosen = tuned_with(Watch(steady((5, 64), 0.8)), model)
    before = planned(TWO, model, "x86-avx512").files()
    monkeypatch.setenv("OPENINFER_CACHE", str(tmp_path))
    Tuned(records=tuple(found)).save(tmp_path / "tuned.json")
    assert planned(TWO, model, "x86-avx512").files() == before
    with_records = planned(TWO, model, "x86-avx512", passes=Passes(tuned=Tuned(records=tuple(found))))
    assert with_records.files() == chosen.files() != before
    other = planned(TWO, model, "x86-avx2", passes=Passes(tuned=Tuned(records=tuple(found))))
    assert other.files() == planned(TWO, model, "x86-avx2").files()
