"""Figures that the documentation repeats are those of the package."""

import re
from pathlib import Path

import pytest

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.sim.commands import COMMANDS

ROOT = Path(__file__).parents[2]
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
