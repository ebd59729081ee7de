"""The page about living with generated Vulkan code: its program is built as it says, runs, and does what it says."""

import os
import re
import subprocess
from pathlib import Path

from tests.synth.vulkan.on_device import on_lavapipe

from openinfer import Synthesizer, graph

PAGE = Path(__file__).parents[3] / "docs" / "vulkan-interop.md"
LAYER = "dynamic { x: f32[4, 8]; } volatile { y: f32[4, 8]; } block entry { op neg(x) >> y; return y; }"


def test_the_program_of_the_page_works_on_the_results_of_a_step_where_they_are(tmp_path: Path) -> None:
    blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    Synthesizer("lavapipe", name="layer").synthesize(None, graph(LAYER)).emit(tmp_path)
    (tmp_path / "twice.comp").write_text(blocks["glsl"])
    (tmp_path / "twice.c").write_text(blocks["c"])
    commands = blocks[""].replace("cc -std=c11", "cc -std=c11 -Wall -Wextra -Werror")
    layers = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
    environment = {**os.environ, **on_lavapipe(), **layers}
    script = ["sh", "-ec", f"{commands}\n./build/twice"]
    ended = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert ended.stdout.splitlines()[-1] == "-0 -62"
    assert "Validation" not in ended.stdout + ended.stderr
