"""What passes hand on is frozen, and the pipeline loads no language until a device asks for one."""

import ast
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import openinfer

ROOT = Path(openinfer.__file__).parent
HANDED_ON = (
    "loops.ir",
    "loops.scalar",
    "loops.structures",
    "synth.program.ir",
    "synth.program.failures",
    "synth.program.integers",
    "synth.program.names",
    "synth.program.packing",
    "synth.memory.place",
    "synth.memory.placed",
    "synth.memory.rollback",
    "synth.memory.state",
    "synth.memory.weights",
    "synth.memory.checks.records",
    "synth.targets.c.header",
    "synth.targets.cpu.bytes",
    "synth.targets.project",
    "synth.targets.target",
)
"""The modules of kernels, programs, and all that is in a ``Placed`` and a ``Target``."""
LANGUAGES = (
    "c",
    "c_target",
    "cuda",
    "cuda_target",
    "vhdl.kernel",
    "vhdl.project",
    "vhdl_target",
    "vulkan",
    "vulkan_target",
)
"""Of VHDL, the record of a machine is loaded, which ``Target`` names."""


def dataclasses_of(module: str) -> list[Any]:
    found = vars(import_module(f"openinfer.{module}")).values()
    return [one for one in found if is_dataclass(one) and getattr(one, "__module__", "") == f"openinfer.{module}"]


@pytest.mark.parametrize("module", HANDED_ON)
def test_what_passes_hand_on_is_frozen(module: str) -> None:
    found = dataclasses_of(module)
    assert found
    for one in found:
        assert one.__dataclass_params__.frozen, one
        lists = [own.name for own in fields(one) if str(own.type).startswith(("list", "dict", "set"))]
        assert not lists, f"{one.__name__} has {lists}, which could be changed"


def test_nothing_changes_a_frozen_object_after_it_is_made() -> None:
    """``object.__setattr__`` stands only where an object is being made."""
    found = []
    for path in (path for package in ("ir", "check", "loops", "synth") for path in (ROOT / package).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef) or function.name in ("__post_init__", "__init__", "__new__"):
                continue
            calls = [one for one in ast.walk(function) if isinstance(one, ast.Attribute) and one.attr == "__setattr__"]
            found += [f"{path}:{call.lineno}" for call in calls]
    assert found == []


def test_importing_the_pipeline_loads_no_language() -> None:
    script = "import sys, openinfer.synth.pipeline; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "openinfer.synth.targets.target" in loaded
    assert not [one for one in loaded for name in LANGUAGES if f"{one}.".startswith(f"openinfer.synth.targets.{name}.")]
