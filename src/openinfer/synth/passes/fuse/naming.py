"""Names in fused kernels: no two things share a name."""

import re
from dataclasses import replace

from openinfer.loops.ir import Buffer, Kernel, ScalarVar
from openinfer.loops.rewrite import renamed, variables_of, with_buffers


def joined_name(one: str, other: str) -> str:
    """The name of the fusion of two kernels."""
    name = f"{one}_{other}"
    return name if len(name) <= 40 else f"{name[:36]}_etc"


def renamed_apart(one: Kernel, other: Kernel) -> tuple[Kernel, Kernel]:
    """Two kernels with disjoint names of variables and buffers; the second one's are changed."""
    taken = {buffer.name for buffer in buffers_of(one)} | {var.name for var in variables_of(one.body)}
    buffers = {buffer.name: replace(buffer, name=free_name(buffer.name, "_", taken)) for buffer in buffers_of(other)}
    names = {var.name: ScalarVar(free_name(var.name, "", taken), var.type) for var in variables_of(other.body)}
    moved = with_buffers(replace(other, body=renamed(other.body, names)), buffers)
    return one, replace(moved, inputs=tuple(buffers[buffer.name] for buffer in other.inputs))


def with_plain_outputs(kernel: Kernel) -> Kernel:
    """The kernel with its outputs' original names, where these are free again."""
    taken = {buffer.name for buffer in buffers_of(kernel)} | {var.name for var in variables_of(kernel.body)}
    names = {}
    for buffer in kernel.outputs:
        plain = re.sub(r"_\d+$", "", buffer.name)
        if plain not in taken:
            names[buffer.name] = replace(buffer, name=plain)
            taken.add(plain)
    return with_buffers(kernel, names)


def buffers_of(kernel: Kernel) -> tuple[Buffer, ...]:
    """All buffers of a kernel."""
    return (*kernel.inputs, *kernel.outputs, *kernel.scratch)


def free_name(name: str, mark: str, taken: set[str]) -> str:
    """A free name, which is then taken: the name itself, or with another number."""
    stem, found, number = re.sub(rf"{mark}\d+$", "", name), name, 1
    while found in taken:
        number += 1
        found = f"{stem}{mark}{number}"
    taken.add(found)
    return found
