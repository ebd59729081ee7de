"""A program can link several projects for GPUs: what they define begins with their names."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.synth.cuda.emulator import on_emulator

from openinfer import Synthesizer, graph

# A step that can fail after it has changed memory, on the device and in a table of the host.
STEP = """
dynamic { x: f32[4]; at: i32[1]; }
persistent { n: f32[4] @init(0); log(t): f32[4] @table; }
volatile { y: f32[1]; }
block entry {
    op add(n, x) >> n;
    cache.write n >> log[0];
    op gather(n, at, axis=0) >> y;
    return y;
}
"""


@pytest.mark.parametrize("device", ["lavapipe", "h200"])
def test_what_a_project_defines_begins_with_its_name(device: str, tmp_path: Path) -> None:
    Synthesizer(device, name="first").synthesize(None, graph(STEP)).emit(tmp_path)
    environment = {**os.environ, **(on_emulator() if device == "h200" else {})}
    command = ["make", "-s", "all"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr[-3000:]
    (library,) = tmp_path.glob("build/*.a")
    found = subprocess.run(["nm", "-g", "--defined-only", library], capture_output=True, text=True, check=True)
    defined = re.findall(r"^[0-9a-f]+ [TRDB] (\w+)$", found.stdout, re.MULTILINE)
    assert "first_step" in defined
    assert [one for one in defined if not one.startswith("first_")] == []
