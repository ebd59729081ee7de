"""This machine's GPU as a device file, by the emulator of the tests; and what is said where something is missing."""

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.in_process import openinfer
from tests.synth.cuda.emulator import on_emulator

from openinfer import DeviceArch, OpenInferError
from openinfer.errors import Code
from openinfer.synth.devices import cuda

FACTS = {"name": "NVIDIA T4", "driver": "CUDA 13.0", "capability": "75", "limits.subgroup_size": "32"}


@pytest.fixture
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_emulator().items():
        monkeypatch.setenv(name, value)


def missing() -> tuple[str, str | None]:
    with pytest.raises(OpenInferError) as caught:
        DeviceArch.detect("cuda")
    assert caught.value.code is Code.NO_GPU
    return caught.value.message, caught.value.diagnostics[0].help


@pytest.mark.usefixtures("_emulated")
def test_what_an_h200_says_is_the_file_that_is_shipped() -> None:
    found, known = (one.to_json() for one in (DeviceArch.detect("cuda"), DeviceArch.named("h200")))
    assert found["numerics"] == known["numerics"]
    assert found["features"] == known["features"]
    assert found["limits"] == {name: value for name, value in known["limits"].items() if name != "comment"}
    assert (found["device"]["name"], found["device"]["architecture"]) == ("NVIDIA H200", "sm_90a")
    printed = openinfer("devices", "--detect", "--api", "cuda")
    assert json.loads(printed.out) == found


@pytest.mark.usefixtures("_emulated")
def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_CUDA_DEVICES", "0")
    message, advice = missing()
    assert "no device of this kind was found" in message
    assert advice is not None
    assert "nvidia-smi" in advice


def test_a_machine_without_the_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gcc").symlink_to(str(shutil.which("gcc")))
    monkeypatch.setenv("PATH", str(tmp_path))
    message, advice = missing()
    assert "there is no 'nvcc'" in message
    assert advice is not None
    assert "CUDA toolkit" in advice


def test_older_gpus_lack_features_or_are_refused() -> None:
    found = cuda.document_of([*FACTS.items()])
    assert (found["device"]["architecture"], found["features"]["bf16"], found["features"]["fp16"]) == (
        "sm_75",
        False,
        True,
    )
    assert DeviceArch.from_json(found).warnings == ()
    with pytest.raises(OpenInferError, match=r"7\.0 is the least"):
        cuda.document_of([*{**FACTS, "capability": "61"}.items()])
