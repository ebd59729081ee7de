"""Steps with known results as commands of the test bench."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from openinfer.dtypes import DType, pack
from openinfer.ops import Array
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import Storage, Value
from openinfer.synth.targets.project import Golden

if TYPE_CHECKING:
    from openinfer.synth.targets.vhdl.project import VhdlProject


def script(project: "VhdlProject", golden: Sequence[Golden]) -> str:
    """The commands: the state, then inputs, a step and its outputs for each of the golden ones."""
    placed, places = project.placed, project.places
    lines = []
    for step in golden:
        for name, value in placed.program.inputs.items():
            lines += _put(places.arena_at + placed.input_offsets[value], _bytes(step.inputs[name], value.dtype))
        lines += ["w 00 01", "g"]
        lines.append(f"x 00 {'02' if step.is_refused else '00'}")
        for name, value in placed.program.outputs.items():
            if not step.is_refused and name in step.outputs:
                at = _address(placed, places.arena_at, value)
                lines += _aimed(at, f"x 02 {_bytes(step.outputs[name], value.dtype).hex()}")
    return "\n".join([*lines, ""])


def _address(placed: Placed, arena_at: int, value: Value) -> int:
    root = placed.memory.classes.root(value)
    if root.storage is Storage.STATE:
        return placed.state.homes[root]
    if root in placed.input_offsets:
        return arena_at + placed.input_offsets[root]
    return arena_at + placed.memory.offset(root)


def _bytes(array: Array, dtype: DType) -> bytes:
    data = pack(np.asarray(array), dtype) if dtype.is_packed else np.ascontiguousarray(array)
    return bytes(data.tobytes())


def _put(address: int, data: bytes) -> list[str]:
    return _aimed(address, f"w 02 {data.hex()}") if data else []


def _aimed(address: int, command: str) -> list[str]:
    return [f"w 01 {address.to_bytes(4, 'little').hex()}", command]
