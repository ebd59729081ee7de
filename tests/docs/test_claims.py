"""Figures that the documentation repeats are those of the package."""

import re
from pathlib import Path

import pytest

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.sim.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "openinfer"
OP_COUNT = len({record.name for record in OPS.values()})


@pytest.mark.parametrize("page", ["README.md", "docs/faq.md", "CHANGELOG.md"])
def test_the_number_of_ops_is_right(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"(\d+) ops\b|There are (\d+) \(`openinfer ops`\)", text)
    assert found
    assert {int(one or other) for one, other in found} == {OP_COUNT}


def test_the_number_of_dtypes_is_right() -> None:
    assert f"All {len(DTYPES)} dtypes" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_debugger_has_the_commands_that_the_readme_names() -> None:
    listed = re.search(r"# a debugger: ([a-z, ]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert listed is not None
    assert set(listed[1].split(", ")) <= {command.name for command in COMMANDS}


@pytest.mark.parametrize("page", ["docs/faq.md", "docs/comparison.md"])
def test_pages_name_make_targets_that_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", (ROOT / page).read_text(encoding="utf-8"))) - {"selftest"}
    assert named <= targets


def test_figures_of_speed_stand_on_one_page() -> None:
    """Other pages quote no times, and of the ratios the least and the greatest, which are those of the table."""
    pages = {page: (ROOT / page).read_text(encoding="utf-8") for page in ("docs/faq.md", "docs/comparison.md")}
    assert not [page for page, text in pages.items() if re.search(r"\d ms\b", text)]
    table = (ROOT / "docs/performance.md").read_text(encoding="utf-8").partition("| model |")[2].partition("\n\n")[0]
    ratios = [float(row.split("|")[6]) for row in table.splitlines()[2:]]
    quoted = re.search(r"([\d.]+) to ([\d.]+) times as fast .* over (\d+) models", pages["docs/faq.md"], re.DOTALL)
    assert quoted is not None
    assert (float(quoted[1]), float(quoted[2])) == (min(ratios), round(max(ratios), 1))
    assert int(quoted[3]) == len(ratios)


def test_what_lies_at_the_top_is_explained() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in ("src", "tests", "bench", "devices", "docs", "editors", "examples", "openinfer-oinf", "res"):
        assert (ROOT / name).is_dir()
        assert re.search(rf"^\|.*`{name}[/`]", text, re.MULTILINE), f"{name} is not explained"
    assert "`verify_oinf.py`" in text


def test_files_that_a_change_touches_exist() -> None:
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("* `")]  # these have tests of their own
    paths = set(re.findall(r"`([a-z_]+/[a-z_0-9/]*\.(?:py|c|lark))`", "\n".join(lines)))
    assert len(paths) > 20
    assert [
        path for path in sorted(paths) if not any((root / path).exists() for root in (PACKAGE, PACKAGE / "synth", ROOT))
    ] == []


def listed(section: str) -> set[str]:
    """The files that a section lists, one line for each folder."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("* `")]
    names = [re.findall(r"`([\w/]+(?:\.(?:py|lark))?)`", line) for line in lines]
    return {f"{folder}/{name}" for folder, *files in filter(None, names) for name in files if "." in name}


def naming(word: str) -> set[str]:
    """The modules that name a class."""
    paths = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    return {name for name, text in paths.items() if re.search(rf"\b{word}\b", text)}


@pytest.mark.parametrize("section", ["A kind of step", "A kind of node"])
def test_the_files_that_a_new_kind_touches_exist(section: str) -> None:
    assert len(listed(section)) > 8
    assert [name for name in sorted(listed(section)) if not (PACKAGE / name).exists()] == []


@pytest.mark.parametrize("kind", ["CacheIncrement", "Barrier"])
def test_every_file_that_knows_a_kind_of_node_is_listed(kind: str) -> None:
    folders = ("ir", "lang", "check", "sim", "synth", "language_service")
    # What only some kinds need, which the text below the list names.
    some = {"ir/rules.py", "ir/dot_style.py", "check/effects.py", "check/events.py"}
    found = {name for name in naming(kind) if name.startswith(folders)}
    assert found
    assert found - some - listed("A kind of node") == set()


@pytest.mark.parametrize("kind", ["WeightCheck", "Fence", "JoinSizes"])
def test_every_file_that_knows_a_kind_of_step_is_listed(kind: str) -> None:
    """Those that make it, and the parts of a host in C that print it, are not listed one by one."""
    found = {name for name in naming(kind) if not name.startswith(("synth/lower/", "synth/targets/c/"))}
    assert found
    assert found - listed("A kind of step") == set()
