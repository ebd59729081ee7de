"""``openinfer inspect``, ``verify``, ``explain``, ``demo`` as a user and as a CI step see them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.in_process import Done, openinfer

from openinfer import __version__
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, UninitializedTensor, save_file


def in_a_process(*arguments: str, cwd: Path) -> Done:
    """What is imported depends on where a command is run."""
    command = [sys.executable, "-m", "openinfer", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    return Done(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.oinf"
    quant = QuantParams("symmetric", QuantScale.per_tensor(0.5))
    tensors = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "q": TensorSpec([1, -2, 3], "i4", quant=quant),
        "later": UninitializedTensor("f16", (2,)),
    }
    save_file(path, tensors, {"D": 4}, {"mode": "fast", "rate": 0.5})
    return str(path)


def test_inspect_prints_sizes_metadata_and_tensors_in_the_documented_form(model: str) -> None:
    output = openinfer("inspect", model).out
    assert "D := 4\n" in output
    assert 'mode: str = "fast"\nrate: f32 = 0.5\n' in output
    assert "w: f32[3, 4] = { 0, 1, 2, 3, 4, ..., 7, 8, 9, 10, 11 }\n" in output
    assert "- [nbytes: 48, min: 0, max: 11, mean: 5.5, median: 5.5, std: 3.45205]\n- hist:\n" in output
    assert "q: i4[3] = { 1, -2, 3 }\n- quant: symmetric per_tensor scale=0.5\n" in output
    assert "later: f16[2] -- uninitialized" in output


def test_inspect_shows_one_tensor(model: str) -> None:
    output = openinfer("inspect", model, "--tensor", "q").out
    assert "q: i4[3]" in output
    assert "w: f32" not in output


def test_inspect_without_statistics_reads_no_histogram(model: str) -> None:
    assert "hist" not in openinfer("inspect", model, "--no-stats").out


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_json_has_the_same_facts(model: str, command: str) -> None:
    facts = json.loads(openinfer(command, model, "--json").out)
    assert facts["ok"] is True
    assert facts["sizevars"] == {"D": 4}
    assert facts["metadata"]["rate"] == {"type": "f32", "value": 0.5}
    tensors = {tensor["name"]: tensor for tensor in facts["tensors"]}
    assert tensors["w"]["shape"] == [3, 4]
    assert tensors["w"]["statistics"]["median"] == 5.5
    assert tensors["q"]["quantization"] == {"scheme": "symmetric", "axis": None, "scale": [0.5], "zero_point": None}
    assert tensors["later"]["initialized"] is False


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_summary_is_short_and_names_the_hash(model: str, command: str) -> None:
    lines = openinfer(command, model, "--summary").out.splitlines()
    assert len(lines) <= 6
    assert lines[-1].startswith("sha256:")
    assert "17 elements" in "".join(lines)


def test_a_bad_file_exits_1_with_a_located_error(model: str) -> None:
    data = bytearray(Path(model).read_bytes())
    data[5] = 9
    Path(model).write_bytes(data)
    done = openinfer("verify", model)
    assert done.status == 1
    assert done.out == ""
    assert "error[E704]: version 9 is unknown" in done.err
    assert "byte 5 (0x5), field version" in done.err


def test_a_bad_file_in_json_names_field_and_offset(model: str) -> None:
    Path(model).write_bytes(Path(model).read_bytes()[:-1])
    done = openinfer("verify", "--json", model)
    assert done.status == 1
    facts = json.loads(done.out)
    assert facts["ok"] is False
    (found,) = facts["diagnostics"]
    assert (found["code"], found["field"], found["offset"]) == ("E708", "file_size", 61)


def test_wrong_usage_exits_2() -> None:
    assert openinfer("inspect").status == 2
    assert openinfer("nonsense").status == 2
    assert openinfer("explain", "E999").status == 2


def test_a_misspelt_tensor_suggests_the_nearest(model: str) -> None:
    done = openinfer("inspect", model, "--tensor", "latre")
    assert done.status == 1
    assert "did you mean 'later'?" in done.err


def test_own_checks_are_run_by_name(model: str, tmp_path: Path) -> None:
    (tmp_path / "house_rules.py").write_text(
        "def no_f32(model):\n"
        "    for info in model.tensors.values():\n"
        "        if info.dtype.name == 'f32':\n"
        "            yield f'{info.name} is f32'\n"
    )
    done = in_a_process("verify", model, "--check", "house_rules:no_f32", cwd=tmp_path)
    assert done.status == 1
    assert "error[E750]: w is f32" in done.err
    assert in_a_process("verify", model, "--check", "house_rules:missing", cwd=tmp_path).status == 1


def test_diff_says_what_differs_and_by_how_much(model: str, tmp_path: Path) -> None:
    other = tmp_path / "other.oinf"
    changed = np.arange(12, dtype=np.float32).reshape(3, 4)
    changed[1, 1] += 0.25
    save_file(other, {"w": changed, "new": np.zeros(2, np.int8)}, {"D": 5}, {"mode": "slow", "rate": 0.5})
    done = openinfer("inspect", model, "--diff", str(other))
    assert done.status == 1
    assert done.out.splitlines() == [
        "~ size D: 4 -> 5",
        "~ metadata mode: str 'fast' -> str 'slow'",
        "- tensor later: f16[2] uninitialized",
        "+ tensor new: i8[2]",
        "- tensor q: i4[3] symmetric per_tensor scale=0.5",
        "~ tensor w: f32[3, 4] (1 of 12 values differ, by at most 0.25, rms 0.0721688)",
    ]
    facts = json.loads(openinfer("inspect", model, "--diff", str(other), "--json").out)
    assert facts[-1]["max_error"] == 0.25


@pytest.mark.parametrize("arguments", [[], ["--tensor", "missing"], ["--summary"], ["--diff", "missing.oinf"]])
def test_inspect_prints_errors_as_json_where_json_is_asked_for(model: str, arguments: list[str]) -> None:
    if "--tensor" not in arguments and "--diff" not in arguments:
        Path(model).write_bytes(b"nonsense")
    done = openinfer("inspect", model, "--json", *arguments)
    assert (done.status, done.err) == (1, "")
    facts = json.loads(done.out)
    assert (facts["path"], facts["ok"], len(facts["diagnostics"])) == (model, False, 1)


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_summary_can_be_json(model: str, command: str) -> None:
    facts = json.loads(openinfer(command, model, "--summary", "--json").out)
    assert (facts["tensors"], facts["elements"], facts["without_data"]) == (3, 17, ["later"])
    assert len(facts["sha256"]) == 64


def test_a_check_that_fails_or_is_no_function_is_reported_as_json(model: str, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("number = 3\ndef broken(model):\n    raise KeyError('x')\n")
    (tmp_path / "typo.py").write_text("def broken(:\n")
    for check, reason in (
        ("rules:broken", "the check broken raised KeyError: 'x'"),
        ("rules:number", "cannot load the check 'rules:number': it is not a function"),
        ("typo:broken", "cannot load the check 'typo:broken'"),
    ):
        done = in_a_process("verify", model, "--json", "--check", check, cwd=tmp_path)
        assert (done.status, done.err) == (1, "")
        (found,) = json.loads(done.out)["diagnostics"]
        assert found["code"] == "E750"
        assert found["message"].startswith(reason)


def test_diff_compares_only_the_tensors_named(model: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.oinf")
    save_file(other, {"w": np.zeros((3, 4), np.float32), "later": UninitializedTensor("f16", (2,))})
    assert openinfer("inspect", model, "--diff", other, "--tensor", "later").out == "no differences\n"
    lines = openinfer("inspect", model, "--diff", other, "--tensor", "w").out.splitlines()
    assert [line[:11] for line in lines] == ["~ tensor w:"]


def test_diff_of_equal_files_is_empty_and_exits_0(model: str) -> None:
    done = openinfer("inspect", model, "--diff", model)
    assert (done.status, done.out) == (0, "no differences\n")


def test_explain_prints_one_code_and_lists_all(model: str) -> None:
    assert openinfer("explain", "e703").out.startswith("# E703: ")
    assert "E703  " in openinfer("explain").out
    assert json.loads(openinfer("explain", "E703", "--json").out)["code"] == "E703"


def test_version_is_printed() -> None:
    assert openinfer("--version").out == f"openinfer {__version__}\n"


def test_demo_authors_verifies_and_prints_the_documented_model(tmp_path: Path) -> None:
    done = openinfer("demo", "--out", str(tmp_path))
    assert done.status == 0
    assert "O := 8" in done.out
    assert "w1: f32[16, 32] = {" in done.out


def test_a_reader_that_stops_early_is_no_error(model: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m openinfer inspect {model} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("D := 4\n", "")


def test_a_progress_bar_shows_on_a_terminal_only(model: str) -> None:
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "openinfer", "verify", model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=secondary) as process:
        output, _ = process.communicate()
    os.close(secondary)
    assert b"reading" in os.read(primary, 65536)
    assert b"D := 4" in output
    os.close(primary)
    assert openinfer("verify", model).err == ""
