"""Every sentence of the language has a test, and every test here belongs to a sentence."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FunctionType

from tests.sim.language.coverage import SENTENCES, sentences_of

FOLDER = Path(__file__).parent


def all_tests() -> dict[str, Callable[..., None]]:
    """The test functions of this folder by file and name."""
    modules = [import_module(f"tests.sim.language.{path.stem}") for path in sorted(FOLDER.glob("test_*.py"))]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("test_") and isinstance(value, FunctionType) and module.__name__ != __name__
    }


def test_every_sentence_has_a_test() -> None:
    covered = {name for test in all_tests().values() for name in sentences_of(test)}
    assert sorted(SENTENCES.keys() - covered) == []


def test_every_test_belongs_to_sentences_that_exist() -> None:
    strange = {name: sentences_of(test) for name, test in all_tests().items() if not _is_marked(test)}
    assert strange == {}


def _is_marked(test: Callable[..., None]) -> bool:
    marks = sentences_of(test)
    return bool(marks) and all(name in SENTENCES for name in marks)


def test_sentences_are_said_once() -> None:
    assert len(set(SENTENCES.values())) == len(SENTENCES)
