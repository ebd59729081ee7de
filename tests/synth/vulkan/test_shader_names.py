"""Names of graphs, models and devices never become tokens of shaders: hostile ones give the same as harmless ones."""

import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.synth.test_names import GRAPH, HARMLESS, SLOTS, identifiers, tensor_names, texts, tokens

from openinfer import DeviceArch, ModelLoader, Synthesizer, graph
from openinfer.ir.values import quote
from openinfer.ir.words import RESERVED
from openinfer.oinf import save_file
from openinfer.synth.targets.vulkan.dialect import GLSL

BUILTINS = """
gl_GlobalInvocationID gl_WorkGroupID local_size_x subgroupAdd barrier atomicMin floatBitsToUint uintBitsToFloat
packInt2x32 fma sqrt main thread put own status arguments more v at oi_words oi_uint8s OI_ZERO OI_FUNCTION uvec2 uint
int64_t float16_t require extension version error pragma defined
"""


def shaders(names: dict[str, str], tensors: list[str], scope: str, device: str, folder: Path) -> dict[str, str]:
    """The shaders of a project, by their paths."""
    path = folder / "model.oinf"
    values = [np.eye(2, dtype=np.float32), np.ones(2, np.float32), np.ones(2, np.float32)]
    save_file(path, dict(zip(tensors, values, strict=True)))
    quoted = {key: quote(one) for key, one in zip(("tensor", "other", "tensor2"), tensors, strict=True)}
    text = GRAPH.format(**names, **quoted, scope=quote(scope))
    arch = DeviceArch.from_json({"device": {"type": "gpu", "api": "vulkan", "name": device}})
    files = Synthesizer(arch, name="net").synthesize(ModelLoader.open(path), graph(text)).files()
    return {path: str(one) for path, one in files.items() if path.startswith("shaders/")}


def chosen(start: int) -> dict[str, str]:
    """Words of GLSL and of generated shaders, for everything that a graph names."""
    words = sorted({*GLSL.reserved, *BUILTINS.split()} - RESERVED)
    words = [word for word in words if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", word)] + identifiers(60)
    own = [words[(start + place) % len(words)] for place in range(len(SLOTS))]
    return dict(zip(sorted(SLOTS, key=lambda slot: HARMLESS[slot]), sorted(own), strict=True))


def test_hostile_names_give_the_same_tokens(tmp_path: Path) -> None:
    tame = shaders(HARMLESS, ["ta", "tb", "tc"], "scope", "device", tmp_path)
    wanted = {path: tokens(text, HARMLESS) for path, text in tame.items()}
    assert len(wanted) > 3
    rng, odd, models = random.Random(7), texts(100), tensor_names(100)
    for start in range(0, 6 * len(SLOTS), len(SLOTS)):
        names = chosen(start)
        found = shaders(names, rng.sample(models, 3), rng.choice(odd), rng.choice(odd) or "x", tmp_path)
        assert found.keys() == wanted.keys()
        for path, text in found.items():
            assert text.isascii()
            assert "\r" not in text
            sizes = {f"s_{names['size']}": "s_<size>"}
            own = [sizes.get(token, token) for token in tokens(text, {"size": names["size"]})]
            assert own == wanted[path], (path, names)


@pytest.mark.parametrize("start", [0, 99])
def test_hostile_names_compile(start: int, tmp_path: Path) -> None:
    odd = "*/ #error injected\n#error injected\\\n"
    found = shaders(chosen(start), ["--", "..", "int"], odd, odd, tmp_path)
    for path, text in found.items():
        file = tmp_path / Path(path).name
        file.write_text(text, encoding="ascii")
    for file in tmp_path.glob("*.comp"):
        command = ["glslangValidator", "-V", "--target-env", "vulkan1.2", "-o", str(tmp_path / "o.spv"), str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout[:2000]
