"""Names in fused kernels: no two things share a name."""

from dataclasses import replace
from typing import TypeVar

from openinfer.loops.ir import Buffer, Kernel, ScalarVar
from openinfer.loops.rewrite import renamed, variables_of, with_buffers

AnyNamed = TypeVar("AnyNamed", Buffer, ScalarVar)


def joined_name(one: str, other: str) -> str:
    """The name of the fusion of two kernels."""
    name = f"{one}_{other}"
    return name if len(name) <= 40 else f"{name[:36]}_etc"


def renamed_apart(one: Kernel, other: Kernel) -> tuple[Kernel, Kernel]:
    """Two kernels with disjoint names of variables and buffers; the second one's are changed."""
    taken = {buffer.name for buffer in buffers_of(one)} | {var.name for var in variables_of(one.body)}
    buffers = {buffer.name: _apart(buffer, "_", taken) for buffer in buffers_of(other)}
    names = {var.name: _apart(var, "", taken) for var in variables_of(other.body)}
    moved = with_buffers(replace(other, body=renamed(other.body, names)), buffers)
    return one, replace(moved, inputs=tuple(buffers[buffer.name] for buffer in other.inputs))


def with_plain_outputs(kernel: Kernel) -> Kernel:
    """The kernel with its outputs' original names, where these are free again."""
    taken = {buffer.name for buffer in buffers_of(kernel)} | {var.name for var in variables_of(kernel.body)}
    names = {}
    for buffer in kernel.outputs:
        if buffer.stem and buffer.stem not in taken:
            names[buffer.name] = replace(buffer, name=buffer.stem)
            taken.add(buffer.stem)
    return with_buffers(kernel, names)


def buffers_of(kernel: Kernel) -> tuple[Buffer, ...]:
    """All buffers of a kernel."""
    return (*kernel.inputs, *kernel.outputs, *kernel.scratch)


def _apart(one: AnyNamed, mark: str, taken: set[str]) -> AnyNamed:
    """A variable or a buffer under a free name, which is then taken."""
    stem = one.stem or one.name
    name = free_name(one.name, f"{stem}{mark}", taken)
    return one if name == one.name else replace(one, name=name, stem=stem)


def free_name(name: str, numbered: str, taken: set[str]) -> str:
    """A free name, which is then taken: the name itself, or ``numbered`` and a number."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{numbered}{number}"
    taken.add(found)
    return found
