"""Batches of random programs: interpreted, simulated, synthesized, compiled together and judged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.differential.batches import IN_THREADS, PLAIN, Failure, Setting, available
from tests.differential.building import Toolchain, library_of, watched
from tests.differential.programs.judging import Outcome, Subject, judge, model_of, outcomes, simulator
from tests.differential.programs.structures import program_of
from tests.differential.programs.tree import Program

from openinfer import graph
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.target import Passes

BATCH = 15
CHEAP = (("cpu", "gcc"), ("generic 32", "gcc"), ("cpu", "clang"), ("x86-avx2", "gcc"), ("generic", "clang"))
DEAR = (
    ("cpu", "gcc", "-O1"),
    ("generic", "gcc", "-O2"),
    ("cpu", "clang", "-O3"),
    ("generic", "clang", "-O1"),
    ("cpu", "gcc", "-O3"),
    ("x86-avx2", "clang", "-O2"),
    ("cpu", "gcc", "-O2"),
    ("x86-avx2", "gcc", "-O1"),
)
EVERY = 12
"""Compilers take several times as long where they optimize, which is what one batch in so many does."""
SETTINGS = tuple(
    Setting(device, Toolchain(cc, (level,)))
    for place in range(EVERY * len(DEAR))
    for device, cc, level in [
        DEAR[place // EVERY] if place % EVERY == EVERY - 1 else (*CHEAP[place % len(CHEAP)], "-O0")
    ]
)
PASSES = (
    ("passes", Passes()),
    ("passes", Passes()),
    ("plain", PLAIN),
    ("passes", Passes()),
    ("unfused", Passes(fuse=None)),
    ("unsimplified", Passes(simplify=None)),
    ("threads", IN_THREADS),
)


def setting(batch: int, *, sanitized: bool = False) -> Setting:
    """The setting of a batch of programs."""
    return available(SETTINGS[batch % len(SETTINGS)], sanitized=sanitized)


@dataclass
class _Version:
    """A program as a project, and what its steps must give."""

    program: Program
    wanted: list[Outcome]
    plan: Plan
    how: Setting


def judge_programs(programs: Sequence[Program], how: Setting, folder: Path) -> Iterator[Failure]:
    """Judge programs that are compiled together."""
    versions: list[_Version] = []
    for program in programs:
        try:
            versions += _simulated(program, how, folder)
        except Exception as error:  # noqa: BLE001  (whatever a program causes is what we are looking for)
            yield _failure(program, error)
    if not versions:
        return
    try:
        plans = {way: [one.plan.project for one in versions if one.how == way] for way in how.every}
        libraries = {way: library_of(own, folder / way.device, way.toolchain) for way, own in plans.items()}
    except AssertionError as error:
        if len({one.program.seed for one in versions}) > 1:
            raise  # whoever called finds out which of them it is
        yield Failure(versions[0].program.seed, str(error), str(versions[0].program), "does not compile")
        return
    for one in versions:
        try:
            module = watched(one.plan.project, libraries[one.how])
            name = one.how.device if one.plan.project.placed.rules.on_device else "C"
            judge(one.program, one.wanted, Subject(name, module.module, module))
        except Exception as error:  # noqa: BLE001  (as above)
            yield _failure(one.program, error)


def _simulated(program: Program, how: Setting, folder: Path) -> list[_Version]:
    wanted = outcomes(program)
    model = model_of(program, folder)
    parsed = graph(str(program))
    judge(program, wanted, simulator(parsed, model))
    if program.seed % 8 == 3:
        judge(program, wanted, simulator(parsed, model, "threaded"))
    name, passes = PASSES[program.seed % len(PASSES)]
    found = []
    for way in how.every:
        synthesizer = Synthesizer(way.arch, name=f"p{program.seed}_{name}", passes=passes)
        found.append(_Version(program, wanted, synthesizer.synthesize(model, parsed), way))
    return found


def _failure(program: Program, error: Exception) -> Failure:
    return Failure(
        program.seed, f"{type(error).__name__}: {error}", str(program), getattr(error, "kind", type(error).__name__)
    )


def judge_batch(seeds: Sequence[int], how: Setting, folder: Path) -> Iterator[Failure]:
    """Judge the programs of seeds."""
    return judge_programs([program_of(seed, has_heap=how.has_heap) for seed in seeds], how, folder)
