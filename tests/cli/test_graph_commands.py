"""``openinfer check``, ``fmt`` and ``graph`` as a user and an editor see them."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from tests.cli.in_process import openinfer

from openinfer import graph
from openinfer.ir.schema import graph_schema

GOOD = """dynamic {
    x: f32[B];
}

volatile {
    y: f32[B];
}

block entry {
    op add(x, x) >> y;
    return y;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "g.oig"
    path.write_text(GOOD)
    return path


def test_check_of_a_good_graph_says_so(source: Path) -> None:
    done = openinfer("check", str(source))
    assert (done.status, done.out, done.err) == (0, f"{source}: no problems\n", "")


def test_check_reports_all_errors_with_places_and_exits_1(source: Path) -> None:
    source.write_text(GOOD.replace("x, x", "z, q").replace("return y;", ""))
    done = openinfer("check", str(source))
    assert done.status == 1
    assert done.err.count("error[E201]") == 2
    assert "error[E402]" in done.err
    assert f"{source}:10:12" in done.err


def test_check_prints_json_for_editors(source: Path) -> None:
    source.write_text(GOOD.replace("x, x", "x, xx"))
    done = openinfer("check", "--json", str(source))
    assert done.status == 1
    (found,) = json.loads(done.out)
    assert (found["code"], found["line"], found["column"], found["end_column"]) == ("E201", 10, 15, 17)
    assert found["help"] == "did you mean 'x'?"


def test_warnings_alone_do_not_fail(source: Path) -> None:
    source.write_text(GOOD + "")
    source.write_text(GOOD.replace("volatile", "constants { a: f32; }\nvolatile"))
    done = openinfer("check", str(source))
    assert done.status == 0
    assert "warning[W901]" in done.err


def test_strict_refuses_unknown_attributes(source: Path) -> None:
    source.write_text(GOOD.replace("y: f32[B];", "y: f32[B] @layout(nhwc);"))
    assert openinfer("check", str(source)).status == 0
    done = openinfer("check", "--strict", str(source))
    assert (done.status, "error[E204]" in done.err) == (1, True)


def test_check_reads_standard_input_and_json(source: Path, tmp_path: Path) -> None:
    assert openinfer("check", "-", text=GOOD).status == 0
    assert "<stdin>:1:1" in openinfer("check", "-", text="blok entry { }").err
    document = tmp_path / "g.json"
    assert openinfer("graph", "to-json", str(source), "-o", str(document)).status == 0
    assert openinfer("check", str(document)).status == 0
    document.write_text('{"vars": 3}')
    done = openinfer("check", str(document))
    assert (done.status, "error[E111]" in done.err) == (1, True)


def test_a_missing_file_is_a_typed_error() -> None:
    done = openinfer("check", "missing.oig")
    assert (done.status, "error[E112]" in done.err) == (1, True)


def test_fmt_changes_files_and_says_so(source: Path) -> None:
    source.write_text(GOOD.replace("\n\n", "\n"))
    assert openinfer("fmt", "--check", str(source)).status == 1
    diff = openinfer("fmt", "--diff", str(source))
    assert diff.status == 1
    assert diff.out.startswith("--- ")
    assert openinfer("fmt", str(source)).out == f"changed {source}\n"
    assert source.read_text() == GOOD
    assert openinfer("fmt", "--check", str(source)).status == 0
    assert openinfer("fmt", str(source)).out == ""


def test_fmt_of_standard_input_goes_to_standard_output() -> None:
    assert openinfer("fmt", "-", text=GOOD.replace("\n", " ")).out == GOOD


def test_fmt_leaves_a_broken_file_alone_and_goes_on_with_the_others(source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.oig"
    broken.write_text("block entry { op }")
    source.write_text(GOOD.replace("\n\n", "\n"))
    done = openinfer("fmt", str(broken), str(source))
    assert (done.status, "error[E101]" in done.err) == (1, True)
    assert broken.read_text() == "block entry { op }"
    assert source.read_text() == GOOD


def test_a_diff_shows_a_missing_line_end(source: Path) -> None:
    source.write_text(GOOD.rstrip())
    done = openinfer("fmt", "--diff", str(source))
    assert done.status == 1
    assert done.out.endswith("-}\n\\ No newline at end of file\n+}\n")


def test_fmt_goes_on_behind_a_file_that_cannot_be_written(source: Path) -> None:
    source.write_text(GOOD.replace("\n\n", "\n"))
    done = openinfer("fmt", "missing.oig", str(source))
    assert (done.status, "error[E112]" in done.err) == (1, True)
    assert source.read_text() == GOOD


def test_standard_input_is_read_like_a_file(source: Path) -> None:
    command = [sys.executable, "-m", "openinfer", "fmt", "-"]
    broken = subprocess.run(command, input=b"block entry { return; // \xff\n}", capture_output=True, check=False)
    assert (broken.returncode, b"error[E112]" in broken.stderr) == (1, True)
    text = "\ufeff" + GOOD.replace("block entry {", "block entry {  // caf\u00e9")
    environment = {"PATH": "", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True, env=environment)
    assert done.stdout.decode("utf-8") == text[1:]


def test_json_on_standard_input_is_recognised() -> None:
    document = json.dumps(graph(GOOD).to_json())
    assert openinfer("check", "-", text=document).out == "<stdin>: no problems\n"
    done = openinfer("check", "--json", "-", text='{"vars": {}, "blocks": {"a": 3}}')
    assert json.loads(done.out)[0]["path"] == "/blocks/a"
    assert openinfer("graph", "to-json", "-", text=document).status == 0


def test_json_goes_there_and_back(source: Path, tmp_path: Path) -> None:
    document = openinfer("graph", "to-json", str(source)).out
    assert openinfer("graph", "from-json", "-", text=document).out == GOOD
    assert json.loads(document) == graph(GOOD).to_json()
    assert "span" in openinfer("graph", "to-json", "--spans", str(source)).out


def test_the_published_schema_accepts_graphs_and_refuses_others(source: Path) -> None:
    schema = json.loads(openinfer("graph", "schema").out)
    assert schema == graph_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    document = graph(GOOD).to_json()
    validator.validate(document)
    document["blocks"]["entry"]["nodes"][0]["kind"]["Op"]["colour"] = 1
    assert not validator.is_valid(document)
