"""No mutant of a model file gets more out of the reader than success or a typed, located error."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.everything import HAS_EVERYTHING
from tests.oinf.corpus import documents, seeds
from tests.oinf.layout_model import Image, read_document
from tests.oinf.mutants import Mutant, mutant, truncations
from tests.oinf.oracle import Judge, scratch_folder
from tests.oinf.report import FIGURES

from openinfer import ModelLoader
from openinfer.oinf import rewrite

CHUNKS, CHUNK = 20 if HAS_EVERYTHING else 6, 500
CUTS = 1 if HAS_EVERYTHING else 2
"""Every second byte in the normal run, every one in ``make fuzz-oinf``."""
SEED = 20240229
Record = Callable[[str, object], None]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_mutant_is_read_correctly_or_refused_with_a_located_error(chunk: int, record_property: Record) -> None:
    with scratch_folder() as folder, Judge(folder) as judge:
        for index in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            judge.judge(mutant(SEED, index), copy=index % 4 == 0)
            judge.figures.mutants += 1
    record_property(FIGURES, judge.figures.to_json())


@pytest.mark.parametrize("name", sorted(seeds()))
def test_a_seed_that_is_cut_is_read_correctly_or_refused(name: str, record_property: Record) -> None:
    with scratch_folder() as folder, Judge(folder) as judge:
        for number, made in enumerate(truncations(name, CUTS)):
            judge.judge(made, copy=number % 8 == 0)
            judge.figures.truncations += 1
    record_property(FIGURES, judge.figures.to_json())


@pytest.mark.parametrize("name", sorted(seeds()))
def test_a_seed_is_accepted_and_says_what_the_layout_model_says(name: str) -> None:
    with scratch_folder() as folder, Judge(folder) as judge:
        judge.judge(Mutant(name, seeds()[name], valid=True), copy=True)
    assert judge.figures.accepted == 1
    assert judge.figures.refused_at_load == 0


@pytest.mark.parametrize("name", sorted(seeds()))
def test_rewriting_gives_canonical_bytes_and_rewriting_those_changes_nothing(name: str, tmp_path: Path) -> None:
    seed = tmp_path / "seed.oinf"
    seed.write_bytes(seeds()[name])
    once, twice = tmp_path / "once.oinf", tmp_path / "twice.oinf"
    with ModelLoader.open(seed) as model:
        rewrite(model, once, version=model.version)
    with ModelLoader.open(once) as model:
        rewrite(model, twice, version=model.version)
    assert once.read_bytes() == read_document(seeds()[name]).canonical()
    assert twice.read_bytes() == once.read_bytes()


@pytest.mark.parametrize("name", sorted(documents()))
def test_a_seed_in_canonical_form_is_rewritten_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    seed, again = tmp_path / "seed.oinf", tmp_path / "again.oinf"
    seed.write_bytes(seeds()[name])
    with ModelLoader.open(seed) as model:
        rewrite(model, again, version=model.version)
    assert again.read_bytes() == seeds()[name]


@pytest.mark.parametrize("name", sorted(seeds()))
def test_the_layout_model_reproduces_every_seed_from_its_fields(name: str) -> None:
    image = Image(seeds()[name])
    assert image.with_values(*((path, field.value) for path, field in image.fields.items())) == seeds()[name]


def test_the_same_number_gives_the_same_mutant() -> None:
    assert [mutant(7, index).data for index in range(50)] == [mutant(7, index).data for index in range(50)]
