"""The features that shaders need of a device: types and functions that core Vulkan does not guarantee.

They follow from what code names: types of values and of memory, in kernels and in the support functions that they call.
The printer narrows positions, and support code depends on how a device rounds, so both say what they name.
"""

from collections.abc import Iterable
from functools import cache

from openinfer.dtypes import INDEX
from openinfer.loops.ir import Buffer, Space
from openinfer.synth.targets.cstyle.statements import Printed
from openinfer.synth.targets.cstyle.support import need_name
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.vulkan.dialect import known_words
from openinfer.synth.targets.vulkan.support import SUPPORT

_TYPES = {
    Feature.F64: ("f64",),
    Feature.I64: ("i64", "u64", INDEX.name),
    Feature.I16: ("i16", "u16"),
    Feature.I8: ("i8", "u8"),
}
"""The features of arithmetic, with the dtypes that they are about."""
_STORES = {8: Feature.STORE8, 16: Feature.STORE16}
"""The features of elements in memory, by their bits."""


def features_of(code: Printed, numerics: Numerics) -> frozenset[Feature]:
    """The features that a launch needs, with all support functions that it calls, for the numerics of a device."""
    types = code.types.union(*(_support_types(need_name(one), numerics) for one in code.needs))
    found = {Feature.ADDRESSES, *_of_types(types), *(feature for one in code.memory for feature in _of_memory(one))}
    return frozenset(found | ({Feature.SHUFFLE} if code.exchanges else set()))


def _of_types(types: Iterable[str]) -> set[Feature]:
    named = set(types)
    return {feature for feature, about in _TYPES.items() if not named.isdisjoint(about)}


def _of_memory(buffer: Buffer) -> set[Feature]:
    """What declaring memory needs; packed elements are stored in words of 32 bits."""
    dtype = buffer.dtype
    if dtype.is_packed:
        return set()
    is_float = dtype.kind == "float" and not dtype.is_small_float
    if dtype.bits in _STORES and buffer.space not in (Space.OWN, Space.GROUP):
        return {_STORES[dtype.bits]}
    return _of_types({dtype.name if is_float else f"u{dtype.bits}"})


@cache
def _support_types(name: str, numerics: Numerics) -> frozenset[str]:
    return SUPPORT.knowing(known_words(numerics)).types((name,))
