"""Random graphs: simulator and generated C agree, whatever the passes, the device and the compiler."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.differential.batches import BATCH, SETTINGS, Failure, judge_batch, setting
from tests.differential.campaign import Job, run
from tests.differential.fuzz import GRAPHS as CAMPAIGN
from tests.differential.fuzz import judge
from tests.differential.graphs import RandomGraph, random_graph
from tests.differential.judging import MOVED_RUNS, Habits, Spread, same
from tests.differential.uses import PAIRS, RECORDS, hand, hands
from tests.everything import HAS_EVERYTHING

from openinfer import ModelLoader, graph
from openinfer.dtypes import Array
from openinfer.oinf import save_file
from openinfer.synth.pipeline import Synthesizer

GRAPHS = 200
"""So many have every op with every dtype."""
LOOKED_AT = BATCH if HAS_EVERYTHING else BATCH // 2
"""Graphs of a batch in the normal run; ``make fuzz-synth`` has all of many more."""
OPTIMIZED = 1
"""So many of a batch are compiled with its optimization here, the others without, and each graph as one program;
``make fuzz-synth`` optimizes all, and has two programs of each."""
PLAIN = ("-O0",)


@pytest.mark.parametrize("batch", range(GRAPHS // BATCH))
def test_random_graphs_agree(batch: int, tmp_path: Path) -> None:
    seeds, how = range(batch * BATCH, batch * BATCH + LOOKED_AT), replace(setting(batch), is_brief=True)
    plain = replace(how, toolchain=replace(how.toolchain, options=PLAIN))
    first = 0 if how == plain else OPTIMIZED
    failures: list[Failure] = []
    for part, chosen in ((seeds[:first], how), (seeds[first:], plain)):
        # A library of a path is loaded once.
        folder = tmp_path / "-".join(chosen.toolchain.options)
        folder.mkdir(exist_ok=True)
        failures += judge_batch(part, chosen, folder)
    assert not failures, "\n\n".join(f"seed {one.seed}: {one.message}\n{one.text}" for one in failures[:2])


def test_random_graphs_have_no_undefined_behaviour() -> None:
    """Under ASan and UBSan, with memory from an allocator that watches both ends of it."""
    assert CAMPAIGN.sanitized(["--seed", str(GRAPHS), "--count", "2", "--sanitize"]).returncode == 0


def test_every_op_with_every_dtype_is_dealt() -> None:
    dealt = {pair for seed in range(GRAPHS) for pair in hand(seed)}
    assert dealt == set(PAIRS)
    assert {name for name, _ in PAIRS} == set(RECORDS)
    assert len(hands(0)) <= GRAPHS


def test_every_dealt_op_is_in_the_graph() -> None:
    for seed in range(0, GRAPHS, 10):
        made = random_graph(seed)
        text = made.text(made.results)
        for name, _ in made.pairs:
            assert f"op {name}(" in text, (seed, name)


def test_the_graphs_have_every_kind_of_structure() -> None:
    texts = [(made := random_graph(seed)).text(made.results) for seed in range(0, GRAPHS, 2)]
    for word in (
        "loop", "branch", "barrier;", "scope", "yield", "await", "dep after", "with {", "sizes {", "@pattern", "@table",
        "@auto_dim", "@fixed", "cache.reset", "cache.decrement", "transfer", "% 3]", "i4[0", "group =", "fuse = false",
    ):  # fmt: skip
        assert any(word in text for text in texts), word
    nested = [text for text in texts if text.count("loop ") > 1]
    assert nested
    assert any(" q_" in text for text in texts), "quantized weights"


def test_the_graphs_use_the_passes(tmp_path: Path) -> None:
    """Graphs that nothing is fused in would prove little about fusion."""
    found: Counter[str] = Counter()
    for seed in range(12):
        made = random_graph(seed)
        save_file(tmp_path / f"{seed}.oinf", made.tensors)
        model = ModelLoader.open(tmp_path / f"{seed}.oinf")
        plan = Synthesizer().synthesize(model, graph(made.text(made.last)))
        found["fused"] += sum(entry.is_fused for entry in plan.ledger)
        found["nodes judged"] += len(made.nodes)
    assert found["fused"] >= 40, found
    assert found["nodes judged"] >= 150, found


def test_wrong_values_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The room that rounding has is small: of values that are a hundredth off, nearly all are found."""
    monkeypatch.setattr("tests.differential.judging.MORE_RUNS", MOVED_RUNS)
    found: Counter[bool] = Counter()
    for seed in range(0, 40, 8):
        made = random_graph(seed)
        save_file(tmp_path / f"{seed}.oinf", made.tensors)
        spread = Spread(made, ModelLoader.open(tmp_path / f"{seed}.oinf"))
        for name, value in (spread.own[0].values or {}).items():
            if value is not None and value.size and np.isfinite(value.reshape(-1)[:1].astype(np.float64)).all():
                wrong = value.copy()
                first = wrong.reshape(-1)[:1].astype(np.float64)
                with np.errstate(all="ignore"):
                    off = np.where(first == 0, 1, first * 1.01 if value.dtype.itemsize > 2 else -first)
                    wrong.reshape(-1)[:1] = off.astype(value.dtype)
                if not same(wrong, value):
                    found[spread.agrees(0, name, wrong)] += 1
    assert found[False] > 20 * found[True], found


def test_a_seed_means_the_same_wherever_a_run_begins() -> None:
    assert [job.seeds for job in CAMPAIGN.jobs(7, 15)] == [
        (7, 8, 9),
        tuple(range(10, 20)),
        (20, 21),
    ]
    one, other = random_graph(33), random_graph(33)
    assert one.text(one.results) == other.text(other.results)
    assert all((one.inputs[2][name] == other.inputs[2][name]).all() for name in one.inputs[2] if "c_" in name)


def test_a_batch_that_does_not_compile_names_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.differential.building.FLAGS", ("-std=c11", "-DNULL=", "-include", "missing.h"))
    failures = run(judge, Job((0, 1), is_sanitized=False))
    assert [failure.seed for failure in failures] == [0, 1]


def test_every_setting_is_used() -> None:
    assert len(SETTINGS) <= GRAPHS // BATCH


def test_a_nan_may_have_all_bits_set_where_a_device_makes_it_so(tmp_path: Path) -> None:
    """Seed 100067 subtracts infinities, and looks at the bits of what that gives."""
    made = random_graph(100067, has_heap=True)
    save_file(tmp_path / "model.oinf", made.tensors)
    model = ModelLoader.open(tmp_path / "model.oinf")
    found = Spread(made, model).value(0, "t_10")
    assert found is not None
    others = np.where(found == 0x7FC0, 0x7FFF, found).astype(np.int16)
    assert (others != found).any()
    assert Spread(made, model, Habits(has_own_nans=True)).agrees(0, "t_10", others)
    assert not Spread(made, model).agrees(0, "t_10", others)


def _values(
    seed: int, step: int, name: str, folder: Path, *, has_heap: bool = True
) -> tuple[RandomGraph, ModelLoader, Array]:
    made = random_graph(seed, has_heap=has_heap)
    save_file(folder / "model.oinf", made.tensors)
    model = ModelLoader.open(folder / "model.oinf")
    found = Spread(made, model).value(step, name)
    assert found is not None
    return made, model, found


def test_a_result_that_may_be_zero_may_be_divided_by(tmp_path: Path) -> None:
    """Seed 940321 divides ``gelu`` of the least number by itself: zero is within its bound."""
    made, model, found = _values(940321, 3, "t_63", tmp_path)
    others = found.copy()
    others[0, [101, 136]] = np.nan
    assert Spread(made, model).agrees(3, "t_63", others)
    others[0, 3] = np.nan
    assert not Spread(made, model).agrees(3, "t_63", others)


def test_the_reciprocal_of_what_may_be_zero_is_either_infinity(tmp_path: Path) -> None:
    """Seed 1001145 transforms equal numbers: nearly all of their frequencies are zeros, of either sign."""
    made, model, found = _values(1001145, 0, "t_64", tmp_path, has_heap=False)
    others = found.copy()
    others[1:, 0] = -np.inf, 1.25, 0.75
    assert Spread(made, model).agrees(0, "t_64", others)


def test_the_smaller_of_zero_and_a_subnormal_number_is_either_where_these_are_zero(tmp_path: Path) -> None:
    made, model, found = _values(300107, 3, "t_6", tmp_path)
    others = found.copy()
    others[0, 2] = 1e-45
    assert found[0, 2] == 0
    assert others[0, 2] > 0
    assert Spread(made, model, Habits(flushes=True)).agrees(3, "t_6", others)
    assert not Spread(made, model).agrees(3, "t_6", others)


def test_a_nan_has_either_sign(tmp_path: Path) -> None:
    """Seed 940647 looks at the bits of the least of some negated numbers, one of which is no number."""
    made, model, found = _values(940647, 1, "t_47", tmp_path)
    assert found == 0x7FC00000
    assert Spread(made, model).agrees(1, "t_47", found ^ np.uint32(1 << 31))
    assert not Spread(made, model).agrees(1, "t_47", found ^ np.uint32(1 << 30))
