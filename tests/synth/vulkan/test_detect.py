"""This machine's Vulkan device as a device file, on lavapipe; and what is said where something is missing."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.cli.in_process import openinfer
from tests.synth.vulkan.on_device import environment

from openinfer import DeviceArch, DeviceError, OpenInferError
from openinfer.errors import Code
from openinfer.synth.devices import vulkan

PROBE = Path(vulkan.__file__).with_name("probe")


@pytest.fixture(autouse=True)
def _only_lavapipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", environment()["VK_ICD_FILENAMES"])


def missing() -> tuple[str, str | None]:
    with pytest.raises(OpenInferError) as caught:
        DeviceArch.detect("vulkan")
    assert caught.value.code is Code.NO_GPU
    return caught.value.message, caught.value.diagnostics[0].help


def path_with(folder: Path, monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    """As if no other programs were installed."""
    for name in programs:
        (folder / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(folder))


def test_the_device_of_this_machine_is_the_one_that_is_shipped(tmp_path: Path) -> None:
    found, known = DeviceArch.detect("vulkan"), DeviceArch.named("lavapipe")
    assert found.warnings == ()
    assert (found.limits, found.features, found.numerics) == (known.limits, known.features, known.numerics)
    assert (found.device.type, found.device.vendor) == ("gpu", "mesa")
    (tmp_path / "d.json").write_text(found.to_text())
    assert DeviceArch.load(tmp_path / "d.json") == found


def test_the_command_prints_the_file() -> None:
    printed = json.loads(openinfer("devices", "--detect", "--api", "vulkan").out)
    assert printed["numerics"]["fma"] == "two roundings"
    assert openinfer("devices", "--api", "vulkan").status == 2
    assert openinfer("devices", "--detect", "--api", "metal").status == 1


@pytest.mark.parametrize(
    ("right", "wrong", "fact"),
    [
        ("quotient = a / b", "quotient = a * (NUMBER(1) / b)", "numerics.f32_division last bit"),
        ("root = sqrt(a)", "root = a * inversesqrt(a)", "numerics.f32_sqrt last bit"),
        ("product = a * b", "product = a * b < 1.2e-38 ? 0 : a * b", "numerics.f32_subnormals flushed"),
        ("packHalf2x16(vec2(a, b))", "packHalf2x16(vec2(a, b) * 0.9999f)", "numerics.f16_conversions inexact"),
        (
            "unpackHalf2x16(given.v[3 * i + 2].x)",
            "unpackHalf2x16(given.v[3 * i + 2].x & ~1u)",
            "numerics.f16_conversions inexact",
        ),
    ],
)
def test_arithmetic_that_is_not_exact_is_noticed(right: str, wrong: str, fact: str, tmp_path: Path) -> None:
    text = (PROBE / "probe.comp").read_text()
    assert text.count(right) == 1
    (tmp_path / "p.comp").write_text(text.replace(right, wrong))
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-o", "p"]
    subprocess.run([*command, str(PROBE / "probe.c"), "-lvulkan", "-lm"], cwd=tmp_path, check=True)
    shaders = []
    for number, flags in enumerate(((), ("-DOI_DOUBLE",), ("-DOI_PRESERVE",), ("-DOI_HALVES",))):
        shaders.append(f"{number}.spv")
        compiler = [vulkan.GLSLANG, "-V", "--target-env", "vulkan1.2", *flags, "-o", shaders[-1], "p.comp"]
        subprocess.run(compiler, cwd=tmp_path, check=True, capture_output=True)
    ended = subprocess.run(["./p", *shaders], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert fact in ended.stdout.splitlines()


@pytest.mark.parametrize(("has", "lacks"), [((), "gcc"), (("gcc",), "glslang-tools")])
def test_a_machine_without_compilers_is_told_what_to_install(
    has: tuple[str, ...], lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_with(tmp_path, monkeypatch, *has)
    assert missing()[1] == f"apt-get install {lacks}"


def test_a_machine_without_a_driver_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nowhere.json")
    what, advice = missing()
    assert what.startswith("a Vulkan driver is missing")
    assert advice == "apt-get install mesa-vulkan-drivers"


def test_a_machine_without_headers_or_loader_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_with(tmp_path, monkeypatch, vulkan.GLSLANG)
    (tmp_path / "gcc").write_text("#!/bin/sh\necho 'fatal error: vulkan/vulkan.h: No such file' >&2\nexit 1\n")
    (tmp_path / "gcc").chmod(0o755)
    what, advice = missing()
    assert "development files" in what
    assert advice == "apt-get install libvulkan-dev"


def test_an_interface_without_detection_is_refused() -> None:
    with pytest.raises(DeviceError, match="did you mean 'vulkan'"):
        DeviceArch.detect("vulcan")


def test_what_a_driver_says_beyond_bounds_is_within_those_of_a_file() -> None:
    facts = [("vendor", "4318"), ("name", "A"), ("driver", "B"), ("limits.max_workgroup_invocations", str(2**32 - 1))]
    facts += [("limits.max_workgroup_size", str(2**32 - 1))] * 3
    facts += [("matrix", "0 0 1 16 16 16"), ("matrix", "0 0 1 16 16 16"), ("matrix", "4 4 4 8 8 8")]
    arch = DeviceArch.from_json(vulkan.document_of(facts))
    assert (arch.device.vendor, arch.limits.max_workgroup_invocations) == ("nvidia", 2**31 - 1)
    assert [(one.a, one.sum, one.k) for one in arch.matrix] == [("f16", "f32", 16)]
