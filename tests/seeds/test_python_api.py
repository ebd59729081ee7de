"""The documented Python snippets and shell commands work as they stand."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openinfer import ModelLoader
from openinfer.oinf import write_oinf

ROOT = Path(__file__).parents[2]
SNIPPETS = Path(__file__).parent / "python_api"


@pytest.fixture
def snippet_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the two snippets define, after running one after the other in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippets"}
    for snippet in ("1_mlp.py.txt", "2_scalar.py.txt"):
        exec(compile((SNIPPETS / snippet).read_text(), snippet, "exec"), names)
    return names


def test_the_documented_mlp_is_written_and_reads_back_equal(snippet_names: dict[str, Any]) -> None:
    built = snippet_names["build"]()
    with ModelLoader.open("mlp.oinf") as model:
        assert dict(model.sizevars) == {"B": 4, "D": 16, "H": 32, "O": 8}
        assert list(model.tensors) == ["b1", "b2", "w1", "w2"]
        for name in model.tensors:
            np.testing.assert_array_equal(model.load(name).to_numpy(), getattr(built, name).values)


def test_a_float_field_is_metadata_and_a_wrapped_scalar_is_a_tensor(snippet_names: dict[str, Any]) -> None:
    write_oinf(snippet_names["model"], "example.oinf")
    with ModelLoader.open("example.oinf") as model:
        assert model.metadata["scale_meta"] == float(np.float32(0.1))
        assert list(model.tensors) == ["scale_tensor"]
        scalar = model.load("scale_tensor")
        assert scalar.shape == ()
        assert scalar.to_numpy() == np.float32(0.1)


def run_in(folder: Path, command: str) -> str:
    """Run a documented command line with this interpreter as ``python``."""
    words = shlex.split(command)
    assert words[0] == "python"
    done = subprocess.run([sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout


def test_the_documented_verify_command_prints_sizes_types_previews_and_statistics() -> None:
    output = run_in(ROOT, (SNIPPETS / "3_verify.sh.txt").read_text())
    assert "B := 4" in output
    assert "w1: f32[16, 32] = {" in output
    assert "- [nbytes: 2048, min: " in output


def test_the_minimal_model_commands_work(tmp_path: Path) -> None:
    """``python examples/python/minimal_oinf.py`` and ``python verify_oinf.py minimal_model.oinf``."""
    for name in ("verify_oinf.py", "examples"):
        os.symlink(ROOT / name, tmp_path / name)
    assert run_in(tmp_path, "python examples/python/minimal_oinf.py") == ""
    output = run_in(tmp_path, "python verify_oinf.py minimal_model.oinf")
    assert "B := 1024" in output
    assert 'mode: str = "clamp_up"' in output
    assert "a: f32[1024] = {" in output


def test_the_committed_example_model_is_what_its_script_writes(tmp_path: Path) -> None:
    run_in(ROOT, f"python examples/openinfer-oinf/mlp_regression_oinf.py {tmp_path}/again.oinf")
    committed = ROOT / "res" / "models" / "mlp_regression.oinf"
    assert (tmp_path / "again.oinf").read_bytes() == committed.read_bytes()


def test_the_packed_example_runs(tmp_path: Path) -> None:
    output = run_in(ROOT, f"python examples/openinfer-oinf/packed_model_oinf.py {tmp_path}/packed.oinf")
    assert "signs: t1[8] = {" in output
    assert "state: f32[8, 8] -- uninitialized" in output
