"""Hostile device files and graphs for Vulkan: errors with codes, and nothing of theirs in shaders or paths."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
from tests.synth.test_names import texts, tokens

from openinfer import DeviceArch, Graph, Synthesizer, graph
from openinfer.errors import OpenInferError

TEXT = "dynamic { x: f32[40]; } volatile { y: f32[40]; s: f32; }"
TEXT += " block entry { op softmax(x) >> y; op sum_axis(y) >> s; return y, s; }"
HOSTILE = ["*/ #error x", "\\\n#include </etc/passwd>\n", "??/\n", "\x00", "\u202e*/", "$(touch x)", "a\rb", '"; x']
ODD: list[Any] = [0, -1, 1, 2**31, 2**63, 2**200, 1.5, float("inf"), "", "8", True, None, [], {}, [1, 2], "../x"]
SECTIONS = {
    "limits": [
        "max_workgroup_size",
        "max_workgroup_invocations",
        "max_shared_memory_bytes",
        "max_push_constants_bytes",
        "max_storage_buffer_range_bytes",
        "subgroup_size",
        "max_loop_iterations",
        "compute_units",
    ],
    "features": ["fp64", "int64", "storage_8bit", "subgroup_ops", "subgroup_shuffle", "buffer_addresses"],
    "numerics": ["f32_division", "f32_sqrt", "fma", "f32_subnormals", "f16_conversions"],
    "toolchain": ["glslang", "cc", "cflags"],
}


def device(**own: str) -> DeviceArch:
    return DeviceArch.from_json({"device": {"type": "gpu", "api": "vulkan", "name": "tame", **own}})


def test_what_a_device_is_called_is_nowhere_in_code() -> None:
    """In none of its files, whatever a file of a device says; and the same input gives the same bytes."""
    wanted = Synthesizer(device(), name="net").synthesize(None, graph(TEXT)).files()
    code = {
        path: tokens(str(text), {}) for path, text in wanted.items() if path.endswith((".c", ".h", ".comp", ".glsl"))
    }
    assert len(code) > 6
    for text in [*HOSTILE, *texts(20)[-4:]]:
        arch = device(**dict.fromkeys(("name", "vendor", "architecture", "driver"), text or "x"))
        found = Synthesizer(arch, name="net").synthesize(None, graph(TEXT)).files()
        assert found.keys() == wanted.keys()
        for path, own in code.items():
            assert tokens(str(found[path]), {}) == own, (path, text)
            assert str(found[path]).isascii()
        assert str(found["Makefile"]).count("\n") == str(wanted["Makefile"]).count("\n")
    again = Synthesizer(arch, name="net").synthesize(None, graph(TEXT)).files()
    assert again == found


@pytest.mark.parametrize("seed", range(4))
def test_odd_values_in_device_files_are_refused_or_harmless(seed: int) -> None:
    rng, small = random.Random(seed), "dynamic { x: f32[9]; } volatile { y: f32; }"
    g = graph(f"{small} block entry {{ op sum_axis(x) >> y; return y; }}")
    outcomes: set[str] = set()
    for _ in range(30):
        document: dict[str, Any] = {"device": {"type": "gpu", "api": "vulkan"}}
        for section, keys in SECTIONS.items():
            chosen = rng.sample(keys, rng.choice([0, 0, 1, 2]))
            document[section] = {key: rng.choice(ODD) for key in chosen}
        try:
            files = Synthesizer(DeviceArch.from_json(document), name="net").synthesize(None, g).files()
        except OpenInferError as error:
            outcomes.add(str(error.code))
        else:
            outcomes.add("")
            assert all(not Path(path).is_absolute() and ".." not in Path(path).parts for path in files)
    assert len(outcomes) > 1, outcomes


def test_files_are_written_below_the_folder_alone(tmp_path: Path) -> None:
    arch = device(name="../../x", driver="/etc/x\n")
    before = tmp_path / "beside"
    before.write_text("kept")
    Synthesizer(arch, name="net").synthesize(None, graph(TEXT)).emit(tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["beside", "out"]
    assert before.read_text() == "kept"
    assert all(one.resolve().is_relative_to(tmp_path / "out") for one in (tmp_path / "out").rglob("*"))


CALLS = """
dynamic { x: f32[4]; }
volatile { y: f32[4]; z: f32[4]; }
constant { W(l): f32[4] @pattern("w.{l}"); }
block layer(h: f32[4], w: f32[4], k: index) { op add(h, w) >> h; return h; }
block entry { call layer(x, y, 0) >> y; call layer(y, x, 1) >> z; return z; }
"""


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in _places(part, (*path, key)))]


def test_calls_of_blocks_in_hostile_json_are_refused_or_harmless() -> None:
    tame = graph(CALLS).to_json()
    nodes = [place for place in _places(tame) if "blocks" in map(str, place) and len(place) > 2]
    rng, codes = random.Random(3), set()
    for _ in range(150):
        document = copy.deepcopy(tame)
        *path, last = rng.choice(nodes)
        inside: Any = document
        for key in path:
            inside = inside[key]
        inside[last] = rng.choice([*ODD, *HOSTILE, "layer", "entry", "x", ["x"], {"call": "entry"}])
        try:
            found = Graph.from_json(document)
            Synthesizer("vulkan", name="net").synthesize(None, found)
        except OpenInferError as error:
            codes.add(error.code)
    assert len(codes) > 3, codes
