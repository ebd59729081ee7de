"""``openinfer check``, ``fmt`` and ``graph`` as a user and an editor see them."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

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


def openinfer(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openinfer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, input=text)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "g.oig"
    path.write_text(GOOD)
    return path


def test_check_of_a_good_graph_says_so(source: Path) -> None:
    done = openinfer("check", str(source))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{source}: no problems\n", "")


def test_check_reports_all_errors_with_places_and_exits_1(source: Path) -> None:
    source.write_text(GOOD.replace("x, x", "z, q").replace("return y;", ""))
    done = openinfer("check", str(source))
    assert done.returncode == 1
    assert done.stderr.count("error[E201]") == 2
    assert "error[E402]" in done.stderr
    assert f"{source}:10:12" in done.stderr


def test_check_prints_json_for_editors(source: Path) -> None:
    source.write_text(GOOD.replace("x, x", "x, xx"))
    done = openinfer("check", "--json", str(source))
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)
    assert (found["code"], found["line"], found["column"], found["end_column"]) == ("E201", 10, 15, 17)
    assert found["help"] == "did you mean 'x'?"


def test_warnings_alone_do_not_fail(source: Path) -> None:
    source.write_text(GOOD + "")
    source.write_text(GOOD.replace("volatile", "constants { a: f32; }\nvolatile"))
    done = openinfer("check", str(source))
    assert done.returncode == 0
    assert "warning[W901]" in done.stderr


def test_strict_refuses_unknown_attributes(source: Path) -> None:
    source.write_text(GOOD.replace("y: f32[B];", "y: f32[B] @layout(nhwc);"))
    assert openinfer("check", str(source)).returncode == 0
    done = openinfer("check", "--strict", str(source))
    assert (done.returncode, "error[E204]" in done.stderr) == (1, True)


def test_check_reads_standard_input_and_json(source: Path, tmp_path: Path) -> None:
    assert openinfer("check", "-", text=GOOD).returncode == 0
    assert "<stdin>:1:1" in openinfer("check", "-", text="blok entry { }").stderr
    document = tmp_path / "g.json"
    assert openinfer("graph", "to-json", str(source), "-o", str(document)).returncode == 0
    assert openinfer("check", str(document)).returncode == 0
    document.write_text('{"vars": 3}')
    done = openinfer("check", str(document))
    assert (done.returncode, "error[E111]" in done.stderr) == (1, True)


def test_a_missing_file_is_a_typed_error() -> None:
    done = openinfer("check", "missing.oig")
    assert (done.returncode, "error[E112]" in done.stderr) == (1, True)


def test_fmt_changes_files_and_says_so(source: Path) -> None:
    source.write_text(GOOD.replace("\n\n", "\n"))
    assert openinfer("fmt", "--check", str(source)).returncode == 1
    diff = openinfer("fmt", "--diff", str(source))
    assert diff.returncode == 1
    assert diff.stdout.startswith("--- ")
    assert openinfer("fmt", str(source)).stdout == f"changed {source}\n"
    assert source.read_text() == GOOD
    assert openinfer("fmt", "--check", str(source)).returncode == 0
    assert openinfer("fmt", str(source)).stdout == ""


def test_fmt_of_standard_input_goes_to_standard_output() -> None:
    assert openinfer("fmt", "-", text=GOOD.replace("\n", " ")).stdout == GOOD


def test_fmt_leaves_a_broken_file_alone_and_goes_on_with_the_others(source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.oig"
    broken.write_text("block entry { op }")
    source.write_text(GOOD.replace("\n\n", "\n"))
    done = openinfer("fmt", str(broken), str(source))
    assert (done.returncode, "error[E101]" in done.stderr) == (1, True)
    assert broken.read_text() == "block entry { op }"
    assert source.read_text() == GOOD


def test_a_diff_shows_a_missing_line_end(source: Path) -> None:
    source.write_text(GOOD.rstrip())
    done = openinfer("fmt", "--diff", str(source))
    assert done.returncode == 1
    assert done.stdout.endswith("-}\n\\ No newline at end of file\n+}\n")


def test_fmt_goes_on_behind_a_file_that_cannot_be_written(source: Path) -> None:
    source.write_text(GOOD.replace("\n\n", "\n"))
    done = openinfer("fmt", "missing.oig", str(source))
    assert (done.returncode, "error[E112]" in done.stderr) == (1, True)
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
    assert openinfer("check", "-", text=document).stdout == "<stdin>: no problems\n"
    done = openinfer("check", "--json", "-", text='{"vars": {}, "blocks": {"a": 3}}')
    assert json.loads(done.stdout)[0]["path"] == "/blocks/a"
    assert openinfer("graph", "to-json", "-", text=document).returncode == 0


def test_json_goes_there_and_back(source: Path, tmp_path: Path) -> None:
    document = openinfer("graph", "to-json", str(source)).stdout
    assert openinfer("graph", "from-json", "-", text=document).stdout == GOOD
    assert json.loads(document) == graph(GOOD).to_json()
    assert "span" in openinfer("graph", "to-json", "--spans", str(source)).stdout


def test_the_published_schema_accepts_graphs_and_refuses_others(source: Path) -> None:
    schema = json.loads(openinfer("graph", "schema").stdout)
    assert schema == graph_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    document = graph(GOOD).to_json()
    validator.validate(document)
    document["blocks"]["entry"]["nodes"][0]["kind"]["Op"]["colour"] = 1
    assert not validator.is_valid(document)
