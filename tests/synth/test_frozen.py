"""What passes hand on is frozen, and the pipeline loads no language until a device asks for one."""

import ast
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import openinfer
from openinfer.synth.program.interval_set import IntervalSet

ROOT = Path(openinfer.__file__).parent
HANDED_ON = (
    "loops.ir",
    "loops.scalar",
    "loops.structures",
    "synth.program.ir",
    "synth.program.failures",
    "synth.program.integers",
    "synth.program.liveness",
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
    "synth.targets.cstyle.library",
    "synth.targets.project",
    "synth.targets.target",
)
"""The modules of kernels, programs, and all that is in a ``Placed`` and a ``Target``."""
NEUTRAL = {"cpu", "cpu.machine", "facts", "project", "target"}
"""What the pipeline loads of ``targets``: of processors, what bounds the time of a step is computed for."""
LANGUAGES = {
    "x86-avx512": {"c"},
    "h200": {"c", "cuda"},
    "vulkan": {"c", "vulkan"},
    "generic-fpga": {"c", "vhdl"},
}
"""The languages that a target loads: GPUs and circuits have a host in C."""
BUILDERS = {
    "loops.lanes": {"_Lane": "a thread as it runs"},
    "loops.locals": {"_Pass": "ranges as statements are read"},
    "synth.lower.current": {"Homes": "homes as variables get them; what keeps them copies them"},
    "synth.lower.emission": {"_Known": "facts at the step that is emitted"},
    "synth.lower.traced": {"Path": "comparisons as a shape rule makes them"},
    "synth.memory.checks.certain": {"Certain": "facts at the step that is planned"},
    "synth.passes.fuse.fuse": {"_Fusion": "a block as its kernels are joined"},
    "synth.passes.simplify": {"_Sharing": "calls that are available at a step"},
    "synth.run.emission": {"_Target": "folders as they are opened"},
    "synth.run.traced": {"_Record": "a node as its events arrive"},
    "synth.targets.c_footprint": {"_Measured": "measurements as they are made"},
    "synth.targets.cpu.emit.tiling": {"Tiling": "lines as they are printed"},
    "synth.targets.cpu.spread": {"_Spread": "arrays as they are needed"},
    "synth.targets.cstyle.host.function": {"Function": "a function as it is printed"},
    "synth.targets.cstyle.widths": {"Widths": "ranges in scope at the statement that is printed"},
    "synth.targets.simt.early": {"EarlyLoads": "loads as they are hoisted"},
    "synth.targets.simt.group_team": {"GroupTeam": "words as a row exchanges values"},
    "synth.targets.simt.scan_parts": {
        "Folded": "statements of a scan as they are made",
        "StretchLoads": "loads of a stretch as they are made",
    },
    "synth.targets.simt.wide": {"FreshNames": "names as they are given away"},
    "synth.targets.vhdl.code": {"SequencerCode": "states as they are printed"},
    "synth.targets.vhdl.expressions": {"Expressions": "variables in scope at the expression that is printed"},
    "synth.targets.vhdl.flow": {"LoopFlow": "a flow as its body is read"},
    "synth.targets.vhdl.frame": {"BlockFrame": "the loops around the step that is printed"},
    "synth.targets.vhdl.kernel": {"KernelCompiler": "a state machine as it is filled"},
    "synth.targets.vhdl.lanes": {"LaneUnit": "an entity as its calls are collected"},
    "synth.targets.vhdl.pipeline": {
        "SharedProduct": "widths as products are found",
        "StagePrinter": "registers as stages are printed",
    },
    "synth.targets.vhdl.stages": {"StageSchedule": "stages as they are assigned"},
    "synth.targets.vhdl.states": {"StateMachine": "states as they are printed"},
    "synth.targets.vhdl.unit": {"KernelUnit": "an entity as its calls are collected"},
}
"""The dataclasses of the back end that are not frozen, and what is in the making in each; a pass hands on none."""


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


def test_only_what_is_in_the_making_is_not_frozen() -> None:
    packages = (ROOT / "loops", ROOT / "synth")
    paths = (path for package in packages for path in package.rglob("*.py"))
    modules = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    found = {
        module: {one.__name__ for one in dataclasses_of(module) if not one.__dataclass_params__.frozen}
        for module in modules
    }
    assert {module: names for module, names in found.items() if names} == {
        module: set(names) for module, names in BUILDERS.items()
    }


@pytest.mark.parametrize("module", HANDED_ON)
def test_what_passes_hand_on_holds_nothing_in_the_making(module: str) -> None:
    builders = {name for names in BUILDERS.values() for name in names}
    for one in dataclasses_of(module):
        words = {own.name: set(re.findall(r"\w+", str(own.type))) for own in fields(one)}
        assert not [name for name, found in words.items() if found & builders], one


def test_a_set_of_positions_never_changes() -> None:
    """Values that share memory occupy the union of their sets, which must not reach into the sets of others."""
    one = IntervalSet([(0, 1)])
    both = one.union([(2, 2), (5, 6)])
    assert (list(one), list(both)) == ([(0, 1)], [(0, 2), (5, 6)])
    assert len({one, both, IntervalSet([(0, 0), (1, 1)])}) == 2


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


def loaded_after(script: str) -> set[str]:
    """The modules of ``synth`` that a fresh interpreter has loaded."""
    script = f"import sys, openinfer.synth.pipeline; {script}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    own = "openinfer.synth."
    return {one.removeprefix(own) for one in found if one.startswith(own)}


def test_importing_the_pipeline_loads_no_language_and_no_schedule() -> None:
    found = loaded_after("pass")
    assert {one for one in found if one.startswith("targets.")} == {f"targets.{one}" for one in NEUTRAL}
    assert not {one for one in found if one.split(".")[0] == "tuning"}


@pytest.mark.parametrize("device", LANGUAGES)
def test_a_target_loads_no_other_language(device: str) -> None:
    script = "from openinfer.synth.targets import target; from openinfer.synth.devices.description import DeviceArch"
    found = loaded_after(f"{script}; target.target_of(DeviceArch.named({device!r}))")
    languages = {"c", "cuda", "vhdl", "vulkan"}
    assert {one for one in languages if f"targets.{one}" in found} == LANGUAGES[device]
