"""What is wrong with a compiled shader, whatever it computes: broken rules, contracted sums, unstated features."""

import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from openinfer.synth.targets.facts import Feature

CAPABILITY, DECORATE, NO_CONTRACTION = 17, 71, 42
F_ADD, F_SUB, F_MUL, F_DIV = 129, 131, 133, 136
DENORM_PRESERVE = 4464
ALWAYS = frozenset({1, 61, 4466, DENORM_PRESERVE})
"""Capabilities that are no features: shaders, subgroups; NaN, infinity and subnormal numbers as they are."""
CAPABILITIES = {
    9: Feature.F16,
    10: Feature.F64,
    11: Feature.I64,
    22: Feature.I16,
    39: Feature.I8,
    63: Feature.SUBGROUPS,
    65: Feature.SHUFFLE,
    4433: Feature.STORE16,
    4448: Feature.STORE8,
    5347: Feature.ADDRESSES,
}

Instruction = tuple[int, list[int]]


def instructions(spirv: bytes) -> Iterator[Instruction]:
    """An opcode and operands each."""
    words = list(struct.unpack(f"<{len(spirv) // 4}I", spirv))
    at = 5
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        yield opcode, words[at + 1 : at + count]
        at += count


def problems(file: Path, features: frozenset[Feature]) -> Iterator[str]:
    """What is wrong with a shader that is to need these features."""
    assert shutil.which("spirv-val"), "these tests need spirv-val: apt-get install spirv-tools"
    command = ["spirv-val", "--target-env", "vulkan1.2", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        yield f"spirv-val: {ended.stdout[:1000]} {ended.stderr[:1000]}"
    found = [*instructions(file.read_bytes())]
    if contracted(found):
        yield f"{len(contracted(found))} sums, differences or quotients may be fused with other instructions"
    if not needed(found) <= features:  # where there are no elements, a compiler leaves out what needs more
        yield f"it needs {sorted(needed(found))}, and is said to need {sorted(features)}"


def contracted(found: list[Instruction]) -> set[int]:
    """Sums, differences and quotients that may be computed otherwise than they are written."""
    fixed = {operands[0] for opcode, operands in found if opcode == DECORATE and operands[1:] == [NO_CONTRACTION]}
    return {operands[1] for opcode, operands in found if opcode in (F_ADD, F_SUB, F_DIV)} - fixed


def needed(found: list[Instruction]) -> frozenset[Feature]:
    """The features of the capabilities that a shader declares."""
    numbers = {operands[0] for opcode, operands in found if opcode == CAPABILITY} - ALWAYS
    return frozenset(CAPABILITIES[number] for number in numbers)
