"""Devices with several memories: what lies where, and what does not fit."""

import json
from typing import Any

import pytest
from tests.cli.in_process import openinfer

from openinfer import Code, DeviceArch, Synthesizer, graph
from openinfer.errors import GraphError
from openinfer.synth.memory.regions import regions_for


def device(*regions: tuple[str, int, str]) -> DeviceArch:
    listed = [{"name": name, "bytes": nbytes, "holds": holds.split()} for name, nbytes, holds in regions]
    return DeviceArch.from_json({"device": {"type": "cpu"}, "memory": {"regions": listed}})


BOTH = device(("fast", 100, "arena state"), ("slow", 1000, "arena state weights"))


@pytest.mark.parametrize(
    ("needed", "found"),
    [
        ({"arena": 60, "state": 40, "weights": 10}, {"arena": "fast", "state": "fast", "weights": "slow"}),
        ({"arena": 60, "state": 41, "weights": 10}, {"arena": "fast", "state": "slow", "weights": "slow"}),
        ({"arena": 101, "state": 40, "weights": 10}, {"arena": "slow", "state": "fast", "weights": "slow"}),
        # The arena would fit into the fast one, but then nothing is left for the state.
        ({"arena": 90, "state": 60, "weights": 960}, None),
        ({"arena": 90, "state": 40, "weights": 960}, {"arena": "fast", "state": "slow", "weights": "slow"}),
        ({"arena": 50, "state": 40, "weights": 1000}, {"arena": "fast", "state": "fast", "weights": "slow"}),
        ({"arena": 50, "state": 40, "weights": 1001}, None),
        ({"arena": 0, "state": 0, "weights": 0}, {}),
    ],
)
def test_the_fastest_memories_that_have_room_are_taken(needed: dict[str, int], found: dict[str, str] | None) -> None:
    if found is not None:
        assert regions_for(BOTH, needed) == found
        return
    with pytest.raises(GraphError) as caught:
        regions_for(BOTH, needed)
    assert caught.value.code is Code.NOT_SYNTHESIZED


def test_a_device_with_one_memory_says_nothing_about_it() -> None:
    assert regions_for(device(), {"arena": 1 << 40}) == {}


TEXT = """
dynamic { x: f32[N]; } volatile { y: f32[N]; } persistent { t: i32; }
block entry { op exp(x) >> y; return y; }
"""


def facts(size: int) -> dict[str, Any]:
    return Synthesizer("cortex-m4").synthesize(None, graph(TEXT), sizes={"N": size}).facts()


def test_the_plan_says_which_memory_is_meant(tmp_path: Any) -> None:
    assert facts(16_000)["regions"] == {"arena": "ccm", "state": "ccm"}
    assert facts(16_384)["regions"] == {"arena": "ccm", "state": "sram"}
    assert facts(16_400)["regions"] == {"arena": "sram", "state": "ccm"}
    (tmp_path / "g.oig").write_text(TEXT)
    done = openinfer("synth", str(tmp_path / "g.oig"), "--device", "cortex-m4", "--size", "N=16")
    assert "  arena    64 bytes, the least possible, in ccm\n" in done.out


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path: Any) -> None:
    (tmp_path / "g.oig").write_text(TEXT)
    arguments = ("--device", "cortex-m4", "--size", "N=40000", "-o", str(tmp_path / "out"))
    done = openinfer("synth", str(tmp_path / "g.oig"), *arguments, "--json")
    found = json.loads(done.out)["diagnostics"][0]
    assert (done.status, found["code"]) == (1, "E801")
    assert found["message"].startswith("arena 156.2 KiB, state 64 B do not fit in the memories of")
    assert "sram: 128.0 KiB for arena, state" in found["notes"]
    assert not (tmp_path / "out").exists()
