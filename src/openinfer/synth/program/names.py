"""The names that a project gives to what its caller sees: fields for sizes, inputs and outputs.

They are identifiers in every language that code is written in: a name of the graph follows a prefix, so that no keyword
is met, and one that is no short identifier becomes a number.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openinfer.loops.dim import sizes_in
from openinfer.synth.program.ir import Program, Value

_LONGEST = 48
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def field(prefix: str, name: str, number: int) -> str:
    """An identifier with a prefix: the name follows it if it is a short identifier, else a number.

    >>> field("v_", "int", 0), field("v_", "x" * 99, 3), field("v_", "a b", 1)
    ('v_int', 'v_3', 'v_1')
    """
    usable = len(name) <= _LONGEST and _IDENTIFIER.fullmatch(name) is not None
    return f"{prefix}{name if usable else number}"


@dataclass(frozen=True)
class Names:
    """The fields of a program's interface, and which dynamic sizes its inputs and its outputs have."""

    sizes: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    input_sizes: tuple[str, ...]
    output_sizes: tuple[str, ...]


def names_of(program: Program) -> Names:
    """The names of a program."""
    sizes = {size: field("s_", size, place) for place, size in enumerate(program.sizes)}
    sizes |= {size: f"s_{size}" for size in program.sizes if not program.is_named(size)}
    return Names(
        sizes,
        {key: field("v_", key, place) for place, key in enumerate(program.inputs)},
        {key: field("v_", key, place) for place, key in enumerate(program.outputs)},
        _sizes_of(program.inputs.values()),
        _sizes_of(program.outputs.values()),
    )


def _sizes_of(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(sorted({size for value in values for extent in value.shape for size in sizes_in(extent)}))
