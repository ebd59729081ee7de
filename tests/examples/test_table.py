"""Every example has the shape that examples/README.md asks for, and a row in the table."""

import io
import re
from pathlib import Path

import pytest
from examples.__main__ import main, names, table
from examples.figures import Figures, side_by_side
from rich.console import Console

from openinfer import graph, load_graph
from openinfer.lang.format import format_source

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
REAL_MODELS = Path(__file__).with_name("real_models.py").read_text()


@pytest.mark.parametrize("name", names())
def test_an_example_has_what_the_readme_asks_for(name: str) -> None:
    folder = EXAMPLES / name
    assert (folder / "README.md").exists()
    assert (folder / "__main__.py").exists()
    assert (ROOT / "tests" / "examples" / f"test_{name}.py").exists() or f"import example as {name}\n" in REAL_MODELS
    assert f"[{name}]({name}/README.md)" in (EXAMPLES / "README.md").read_text()
    assert sum(path.stat().st_size for path in folder.glob("*.oinf")) <= 1_500_000


@pytest.mark.parametrize("path", [*EXAMPLES.glob("*/README.md"), EXAMPLES / "README.md"], ids=str)
def test_links_lead_somewhere(path: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("**/*.oig")), ids=lambda path: path.name)
def test_graphs_are_formatted(path: Path) -> None:
    assert format_source(path.read_text()) == path.read_text()
    assert load_graph(path).blocks


def test_the_table_has_a_row_for_each_example() -> None:
    rows = {name: Figures(f"a {name}", 2048, 64, 1.5, 0.25, "the same bits", agrees=True) for name in ("one", "two")}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(rows))
    shown = console.export_text()
    assert re.search(r"one .* a one .* 2.0 KiB .* 64 B .* 1.500 .* 0.250 .* the same bits", shown)
    assert "a two" in shown


def test_examples_that_are_not_there_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "there is no example nothing; there are " in capsys.readouterr().err


def test_figures_say_how_far_results_are_apart() -> None:
    doubled = graph("dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op add(x, x) >> y; return y; }")
    found = side_by_side("doubling", doubled, None, [{"x": [1.0, 2.0, 3.0, 4.0]}] * 3)
    assert (found.model, found.agreement, found.agrees) == ("doubling", "the same bits", True)
    assert found.arena_bytes > 0
