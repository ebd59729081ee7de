"""``openinfer draw`` as a user sees it: formats by name, whole files or none, typed errors when dot fails."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import openinfer.cli.draw
from openinfer.cli.app import app
from openinfer.cli.draw import draw
from openinfer.errors import OpenInferError
from openinfer.lang import load_graph

SOURCE = "dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op relu(x) >> y; return y; }"


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "g.oig"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def fake_dot(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put another program called dot on the PATH, and nothing else."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "dot").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (tools / "dot").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tools))


@pytest.mark.parametrize(
    ("form", "start"), [("svg", b"<?xml"), ("PNG", b"\x89PNG"), ("pdf", b"%PDF"), ("dot", b"digraph")]
)
def test_the_format_follows_from_the_name(source: str, tmp_path: Path, form: str, start: bytes) -> None:
    assert shutil.which("dot"), "these tests need Graphviz: apt-get install graphviz"
    draw(source, str(tmp_path / f"picture.{form}"))
    assert (tmp_path / f"picture.{form}").read_bytes().startswith(start)


def test_json_graphs_can_be_drawn(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "g.json"
    document.write_text(json.dumps(load_graph(source).to_json()), encoding="utf-8")
    draw(source, "-")
    expected = capsys.readouterr().out
    draw(str(document), "-")
    assert capsys.readouterr().out == expected
    assert expected.startswith("digraph openinfer {\n")


def test_dot_text_needs_no_graphviz(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    draw(source, str(tmp_path / "g.dot"))
    draw(source, "-")
    assert capsys.readouterr().out == (tmp_path / "g.dot").read_text(encoding="ascii")


def test_another_ending_is_wrong_usage(source: str, tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"\.svg, \.png, \.pdf or \.dot"):
        draw(source, str(tmp_path / "g.bmp"))


def test_without_graphviz_the_error_says_how_to_get_it(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OpenInferError) as caught:
        draw(source, str(tmp_path / "g.svg"))
    assert caught.value.code == "E752"
    assert caught.value.diagnostics[0].help == (
        "install Graphviz, for example: apt-get install graphviz; or write a .dot file"
    )


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Error: no layout' >&2; echo more >&2; exit 3", "Error: no layout"),
        ("exit 3", "exit status 3"),
        ("kill -9 $$", "exit status -9"),
        ("exit 0", "its output is not in SVG format"),
        ("echo hello", "its output is not in SVG format"),
        ("echo 'Format: svg not recognized' >&2", "Format: svg not recognized"),
        ("printf '\\033[31mred\\377' >&2; exit 1", "\\x1b[31mred\ufffd"),
    ],
)
def test_a_failing_dot_is_a_typed_error_and_leaves_the_old_file(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    output = tmp_path / "g.svg"
    output.write_text("old", encoding="utf-8")
    fake_dot(tmp_path, script, monkeypatch)
    with pytest.raises(OpenInferError) as caught:
        draw(source, str(output))
    assert caught.value.code == "E752"
    assert caught.value.message.endswith(f"could not draw the graph: {reason}")
    assert output.read_text(encoding="utf-8") == "old"
    assert sorted(os.listdir(tmp_path)) == ["g.oig", "g.svg", "tools"]


def test_a_dot_that_cannot_be_started_is_a_typed_error(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dot(tmp_path, "", monkeypatch)
    (tmp_path / "tools" / "dot").write_bytes(b"\x7fELF no program")
    with pytest.raises(OpenInferError, match="Exec format error"):
        draw(source, str(tmp_path / "g.svg"))


def test_a_dot_that_hangs_is_stopped(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = shutil.which("sleep")
    fake_dot(tmp_path, f"exec {sleep} 600", monkeypatch)
    monkeypatch.setattr(openinfer.cli.draw, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(OpenInferError, match="not done after"):
        draw(source, str(tmp_path / "g.svg"))


def test_a_bad_graph_leaves_no_picture(tmp_path: Path) -> None:
    (tmp_path / "bad.oig").write_text("block entry { op }", encoding="utf-8")
    with pytest.raises(OpenInferError):
        draw(str(tmp_path / "bad.oig"), str(tmp_path / "g.svg"))
    assert os.listdir(tmp_path) == ["bad.oig"]


LOOPED = """
dynamic { x: f32[B]; } volatile { y: f32[B]; }
block entry { transfer x >> y; loop twice (i in 0..2) { t = op relu(y); op neg(t) >> y; } return y; }
"""


def drawn(folder: Path, *options: str) -> str:
    (folder / "loop.oig").write_text(LOOPED, encoding="utf-8")
    done = CliRunner().invoke(app, ["draw", str(folder / "loop.oig"), *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_sizes_settle_the_types_in_the_picture(tmp_path: Path) -> None:
    assert "f32[5]" not in drawn(tmp_path)
    text = drawn(tmp_path, "--size", "B=5")
    assert text.count("f32[5]") > 3
    assert ">f32[B]<" not in text


def test_collapse_takes_kinds_and_names_and_leaves_small_graphs_open(tmp_path: Path) -> None:
    for what in ("loops", "twice"):
        assert "relu" not in drawn(tmp_path, "--collapse", what)
    assert "relu" in drawn(tmp_path, "--collapse", "auto")
    with pytest.raises(typer.BadParameter, match="no block, loop or scope is called 'thrice'"):
        draw(str(tmp_path / "loop.oig"), collapse=["thrice"])


def test_auto_collapses_large_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openinfer.cli.draw, "LARGE", 3)
    assert "relu" not in drawn(tmp_path, "--collapse", "auto")
