"""The page about the structure of the code names what is there, and everything that a reader of the back end finds."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import openinfer
from openinfer.synth.program.ir import Step

ROOT = Path(openinfer.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "implementation.md"
TEXT = re.sub(r"^```.*?^```", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}
CODE = re.compile(r"`([^`]+)`")

FOLDERS = {
    "Inside `oinf`": ("oinf",),
    "Inside `importing`": ("importing",),
    "Inside `quantizing`": ("quantizing",),
    "Inside `studio`": ("studio",),
    "Inside `serve`": ("serve",),
    "Inside `ir` and `lang`": ("ir", "lang"),
    "Inside `ops`, `check` and `sim`": ("ops", "check", "sim"),
    "`loops`: the loop IR": ("loops",),
    "`synth.targets.simt`": ("synth/targets/simt",),
}
"""The sections with a row for each part of a folder, named in its first column."""
ELIDED = {"ops"}
"""The page says of the modules of ops that there is one for each family."""

PACKAGES = {
    "The path of a graph through `synth`": "synth",
    "`synth.targets`": "synth/targets",
}
"""The sections with a row for each package of a folder, whose second column names the modules."""


def rows(section: str) -> Iterator[tuple[list[str], list[str]]]:
    """The names in the first and in the second column of the rows of a section."""
    for line in SECTIONS[section].splitlines():
        cells = line.split("|")
        if len(cells) > 3 and CODE.search(cells[1]):
            yield CODE.findall(cells[1]), CODE.findall(cells[2])


def is_there(folder: Path, name: str) -> bool:
    """Whether a folder has a module, a package or a file of this name; ``a.b`` may be a file or a dotted path."""
    plain = [folder / name, folder / f"{name.replace('.', '/')}.py", folder / name.replace(".", "/")]
    return any(path.exists() for path in plain) or any(any(folder.glob(each)) for each in (name, f"{name}.*"))


def modules(folder: Path) -> set[str]:
    """The modules and packages in a folder; other folders in it have files that are not Python's."""
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")} | packages


def test_the_first_table_has_every_package() -> None:
    named = [name for first, _ in rows("Packages") for name in first]
    assert sorted(named) == sorted(modules(ROOT))


@pytest.mark.parametrize("section", FOLDERS)
def test_the_table_of_a_package_has_its_modules_and_no_others(section: str) -> None:
    folders = [ROOT / folder for folder in FOLDERS[section]]
    named = {name for first, _ in rows(section) for name in first}
    gone = [name for name in named if not any(is_there(place, name) for place in (*folders, ROOT))]
    assert gone == []
    text = SECTIONS[section]
    words = {word for name in CODE.findall(text) for word in (name, name.rpartition(".")[2])}
    listed = [folder for folder in folders if folder.name not in ELIDED]
    assert [name for folder in listed for name in sorted(modules(folder)) if name not in words] == []


@pytest.mark.parametrize("section", PACKAGES)
def test_the_row_of_a_package_names_modules_that_are_in_it(section: str) -> None:
    top = ROOT / PACKAGES[section]
    for first, second in rows(section):
        folders = [top / name.replace(".", "/") for name in first]
        inside = [one for folder in folders for one in (folder, *(path for path in folder.glob("*") if path.is_dir()))]
        named = [name for name in second if not re.fullmatch(r"[A-Z]\w+", name)]
        assert [name for name in named if not any(is_there(folder, name) for folder in inside)] == [], first


def every_package() -> list[str]:
    return sorted(path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "synth").rglob("__init__.py"))


@pytest.mark.parametrize("package", every_package())
def test_every_module_of_the_back_end_is_on_the_page(package: str) -> None:
    """In the row of its package, or in the section about it or about the package that it is in."""
    texts = [text for title, text in SECTIONS.items() for name in CODE.findall(title) if is_within(package, name)]
    words = {name for text in texts for name in CODE.findall(text)}
    for section, top in PACKAGES.items():
        for first, second in rows(section):
            places = {f"{top}/{name.replace('.', '/')}" for name in first}
            words |= {*second} if package in places else set()
            words |= {place.removeprefix(f"{package}/") for place in places}
    parts = {part for name in words for part in re.split(r"[/.]", name)}
    assert [name for name in sorted(modules(ROOT / package)) if name not in parts] == []


def is_within(package: str, dotted: str) -> bool:
    """Whether a package is one that is named with dots, or in it; what is in ``targets`` has rows of its own."""
    folder = dotted.replace(".", "/")
    return package == folder or (package.startswith(f"{folder}/") and folder not in PACKAGES.values())


def test_the_table_of_steps_has_every_kind() -> None:
    named = [name for first, _ in rows("`synth.program` and `synth.lower`") for name in first]
    assert sorted(named) == sorted(step.__name__ for step in Step.__args__)
