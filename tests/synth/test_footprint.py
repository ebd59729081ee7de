"""What the report says that a program takes of a microcontroller, with and without the tools that measure it."""

import shutil
from pathlib import Path

import pytest
from tests.synth.small_models import SMALL_MODELS

from openinfer import graph
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.report.footprint import Footprint, deepest

GRAPH = r"""graph: { title: "src/a.c"
node: { title: "a_step" label: "a_step\nsrc/a.c:1:5\n40 bytes (static)" }
node: { title: "a.c:inner" label: "inner\nsrc/a.c:9:5\n8 bytes (static)" }
node: { title: "kernel" label: "kernel\nsrc/kernels.h:1:5" shape : ellipse }
node: { title: "memcpy" label: "__builtin_memcpy\n<built-in>" shape : ellipse }
edge: { sourcename: "a_step" targetname: "a.c:inner" label: "src/a.c:3:5" }
edge: { sourcename: "a_step" targetname: "kernel" label: "src/a.c:3:5" }
edge: { sourcename: "a_step" targetname: "memcpy" }
}
graph: { title: "src/kernels.c"
node: { title: "kernel" label: "kernel\nsrc/kernels.c:1:5\n100 bytes (static)" }
}
"""


def _plan(folder: Path, device: str = "cortex-m4") -> Plan:
    small = SMALL_MODELS["mlp"]
    return Synthesizer(device, name="mlp").synthesize(small.saved(folder), graph(small.text))


def test_the_stack_is_the_deepest_chain_of_calls() -> None:
    assert deepest(GRAPH, "a_step") == 140


def test_a_stack_without_a_bound_is_not_given() -> None:
    recursive = GRAPH + 'edge: { sourcename: "kernel" targetname: "a_step" label: "src/a.c:3:5" }\n'
    assert deepest(recursive, "a_step") is None
    assert deepest(GRAPH.replace("100 bytes (static)", "100 bytes (dynamic)"), "a_step") is None
    assert deepest(GRAPH, "another") is None


def test_without_the_compiler_of_the_device_nothing_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    plan = _plan(tmp_path)
    found = plan.footprint()
    assert isinstance(found, Footprint)
    assert (found.code, found.stack, found.context, found.is_counted) == (None, None, None, False)
    assert found.ram == plan.placed.arena_bytes
    assert found.unmeasured == ("code and stack are not measured: there is no arm-none-eabi-gcc",)
    assert "code     not measured, without weights" in found.text()
    assert "instructions, about, an estimate" in found.text()


def test_devices_with_an_operating_system_have_no_footprint(tmp_path: Path) -> None:
    assert _plan(tmp_path, "x86-avx2").footprint() is None
