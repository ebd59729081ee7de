"""The site is built from all pages without a broken link, and its reference has every public name and every option."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import openinfer
import openinfer.oinf
import openinfer.sim
from docs import build_pages
from openinfer.cli.app import app

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^from openinfer[\w.]* import (\([^)]*\)|.*)$", re.MULTILINE)
INSIDE = ("implementation.md", "extending.md", "errors.md")
"""Pages about what is not public, and with examples of it."""
HOMES = {"openinfer.check.bind.bind": "openinfer.bind"}  # a function that is called as its module needs its full name


def reference() -> list[str]:
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    return [HOMES.get(name, name) for name in shown]


def test_the_reference_has_every_public_name_once() -> None:
    modules = {"openinfer.oinf": openinfer.oinf.__all__, "openinfer.sim": openinfer.sim.__all__}
    inner = {f"{home}.{name}" for home, names in modules.items() for name in names if name not in openinfer.__all__}
    assert {f"openinfer.{name}" for name in openinfer.__all__} | inner <= set(reference())
    assert len(set(reference())) == len(reference())


def test_the_reference_has_every_name_that_pages_import() -> None:
    pages = {ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / name for name in INSIDE}
    imports = [found for page in pages for found in IMPORT.findall(page.read_text())]
    names = {name for listed in imports for name in re.findall(r"\w+", listed)}
    assert {"Simulator", "on_nan", "save_file"} <= names
    assert names - {name.rpartition(".")[2] for name in reference()} == set()


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")


def test_the_reference_has_every_command_and_option() -> None:
    sections = dict(re.findall(r"^#+ `(openinfer[^`]+)`\n(.*?)(?=^#|\Z)", build_pages.command_page(), re.M | re.S))
    found = dict(commands(typer.main.get_command(app), "openinfer"))
    assert set(sections) == set(found)
    for name, command in found.items():
        for option in [one for parameter in command.params for one in parameter.opts if one.startswith("-")]:
            assert re.search(rf"^\* `(.*, )?{option}\b", sections[name], re.MULTILINE), f"{name} {option}"


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("README.md", "[tour](docs/tour.md)", "[tour](tour.md)"),
        ("README.md", "![p](docs/pipeline.svg)", "![p](pipeline.svg)"),
        ("README.md", "[all](LICENSE)", "all"),
        ("docs/cookbook/stepping.md", "[d](../../examples/digits/README.md)", "[d](../examples/digits.md)"),
        ("docs/cookbook/stepping.md", "[b](breakpoints.md#in-the-debugger)", "[b](breakpoints.md#in-the-debugger)"),
        ("examples/digits/README.md", "[g](digits.oig)", "[g](digits.md#digitsoig)"),
        ("examples/digits/README.md", "[t](train.py)", "t"),
        ("examples/graphs/README.md", "[l](../../docs/language.md#types)", "[l](../language.md#types)"),
        ("docs/faq.md", "[p](https://peps.python.org)", "[p](https://peps.python.org)"),
        ("docs/faq.md", "```\n[l](x)\n```", "```\n[l](x)\n```"),
    ],
)
def test_links_lead_to_the_same_place_on_the_site(source: str, link: str, expected: str) -> None:
    assert build_pages.for_site(link, source) == expected


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({page for page, _ in build_pages.pages()})


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    build_pages.write_pages(tmp_path / "pages")
    settings = (ROOT / "mkdocs.yml").read_text()
    for there, here in (("build/pages", "pages"), ("build/site", "site"), ("[src]", f"[{ROOT}/src]")):
        settings = settings.replace(there, here)
    (tmp_path / "mkdocs.yml").write_text(settings.replace("docs/doctests.py", f"{ROOT}/docs/doctests.py"))
    zensical = [str(Path(sys.executable).parent / "zensical"), "build", "--config-file", "mkdocs.yml", "--strict"]
    done = subprocess.run(zensical, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "site" / "api.html").read_text()
    assert 'id="openinfer.Simulator"' in reference
    assert "&gt;&gt;&gt;" in reference


@pytest.mark.parametrize("path", build_pages.kept_pages(), ids=lambda path: path.name)
def test_pages_made_from_code_are_as_the_code_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == build_pages.kept_pages()[path], "make docs writes it"
