"""What the documentation shows happens: Python blocks run, console blocks print what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COOKBOOK = sorted(path.name for path in (ROOT / "docs" / "cookbook").glob("*.md"))
PAGES = [
    "README.md",
    "docs/tour.md",
    "docs/faq.md",
    "docs/models.md",
    "docs/importing.md",
    "docs/quantize.md",
    "docs/simulation.md",
    "docs/synthesis.md",
    "docs/vhdl.md",
    "docs/implementation.md",
]
PAGES += [f"docs/cookbook/{name}" for name in COOKBOOK]
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def run_console(block: str) -> None:
    """Run each command after a ``$`` and compare what it prints with what stands below it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, expected in COMMAND.findall(block):
        done = subprocess.run(
            ["bash", "-c", command],
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.stdout == expected, command


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_in_the_order_of_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for language, block in blocks:
        if language == "python":
            exec(compile(block, page, "exec"), names)
        else:
            run_console(block)
    if page == "README.md":
        (shown,) = re.findall(r"^```c\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        assert shown in Path("build/net/src/kernels.c").read_text()


def test_the_picture_of_the_tour_is_that_of_its_graph(tmp_path: Path) -> None:
    """Where things stand in a picture depends on the version of Graphviz; what it says does not."""
    page = (ROOT / "docs" / "tour.md").read_text()
    found = re.search(r'Path\("parity.oig"\).write_text\("""\\\n(.*?)"""\)', page, re.DOTALL)
    assert found is not None
    (tmp_path / "parity.oig").write_text(found[1])
    command = [str(Path(sys.executable).parent / "openinfer"), "draw", "parity.oig", "-o", "parity.svg"]
    subprocess.run(command, cwd=tmp_path, check=True)
    words = [
        sorted(re.findall(r"<text[^>]*>(.*?)</text>", path.read_text()))
        for path in (tmp_path / "parity.svg", ROOT / "docs" / "parity.svg")
    ]
    assert words[0] == words[1]
    assert "concat" in words[0]
