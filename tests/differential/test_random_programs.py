"""Random programs: an interpreter of the tests' own, the simulator and generated C agree bit for bit."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.differential.call_fuzz import judge_calls
from tests.differential.program_fuzz import PROGRAMS as CAMPAIGN
from tests.differential.programs import constructs as constructs_module
from tests.differential.programs.batches import BATCH, judge_batch, setting
from tests.differential.programs.constructs import CONSTRUCTS, constructs
from tests.differential.programs.judging import outcomes
from tests.differential.programs.outlining import Outlining
from tests.differential.programs.reducing import reduced
from tests.differential.programs.structures import program_of
from tests.differential.programs.tree import Count, Program, walk
from tests.everything import HAS_EVERYTHING

PROGRAMS = 180
LOOKED_AT = BATCH if HAS_EVERYTHING else 10
"""So many of a batch; ``make fuzz-synth`` has all of many more."""
ALONE = (
    "tree",
    "numbers",
    "tables",
    "interpret",
    "making",
    "expressions",
    "statements",
    "table_statements",
    "structures",
    "outlining",
)


def _seeds(batch: int) -> range:
    return range(batch * BATCH, batch * BATCH + LOOKED_AT)


def _program(seed: int) -> Program:
    return program_of(seed, has_heap=setting(seed // BATCH).has_heap)


@pytest.mark.parametrize("batch", range(PROGRAMS // BATCH))
def test_random_programs_agree(batch: int, tmp_path: Path) -> None:
    failures = list(judge_batch(_seeds(batch), setting(batch), tmp_path))
    again = "python -m tests.differential.program_fuzz --count 1 --seed"
    assert not failures, "\n\n".join(f"{again} {one.seed}\n{one.message}\n{one.text}" for one in failures[:2])


@pytest.mark.parametrize("batch", range(3))
def test_random_programs_with_calls_agree(batch: int, tmp_path: Path) -> None:
    failures = list(judge_calls(_seeds(batch), setting(batch), tmp_path))
    again = "python -m tests.differential.call_fuzz --count 1 --seed"
    assert not failures, "\n\n".join(f"{again} {one.seed}\n{one.message}\n{one.text}" for one in failures[:2])


def test_statements_do_the_same_as_blocks_with_parameters() -> None:
    for seed in range(40):
        plain = program_of(seed)
        assert repr(outcomes(Outlining(plain, seed).run())) == repr(outcomes(plain)), seed


def test_random_programs_have_no_undefined_behaviour() -> None:
    """Under ASan and UBSan, with memory from an allocator that watches both ends of it."""
    assert CAMPAIGN.sanitized(["--seed", str(PROGRAMS), "--count", "4", "--sanitize"]).returncode == 0


def test_the_interpreter_shares_nothing_with_what_it_judges() -> None:
    folder = Path(constructs_module.__file__).parent
    for name in ALONE:
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                assert not any(one.split(".")[0] == "openinfer" for one in modules), (name, modules)
                own = [one for one in modules if one.startswith("tests.")]
                assert all(one.rpartition(".")[2] in ALONE for one in own), (name, modules)


def test_the_programs_have_every_construct() -> None:
    found: Counter[str] = Counter()
    for seed in (seed for batch in range(PROGRAMS // BATCH) for seed in _seeds(batch)):
        found.update(constructs(_program(seed)))
    assert all(found[name] for name in CONSTRUCTS), {name: found[name] for name in CONSTRUCTS}


def test_a_seed_means_the_same_program_every_time() -> None:
    one, other = program_of(33), program_of(33)
    assert str(one) == str(other)
    assert repr(one.steps) == repr(other.steps)


def test_what_does_not_matter_is_left_out() -> None:
    def counts(program: Program) -> bool:
        return any(isinstance(statement, Count) for statement in walk(program.blocks["entry"]))

    program = next(made for made in map(program_of, range(20)) if counts(made))
    small = reduced(program, counts)
    assert [type(statement) for statement in walk(small.blocks["entry"])][-1] is Count
    assert len(str(small)) < len(str(program)) / 2
