"""Checks what kernels need against a device description; a device that lacks something is refused (E805).

A node is refused if it needs a feature that the description denies, or exceeds one of its limits. What the description
does not mention is allowed: the program asks the driver for it at startup.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.errors.spans import Place
from openinfer.ir import Graph, Node, Op
from openinfer.ir.text import node_head
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.facts import Feature


@dataclass(frozen=True)
class Requirement:
    """What a launch needs of a device."""

    features: frozenset[Feature] = frozenset()
    threads: int = 1
    """Per group."""
    shared_bytes: int = 0
    """Shared memory per group."""
    argument_bytes: int = 0
    """Arguments passed directly with a launch."""
    iterations: int = 0
    """Iterations of all loops of one thread."""


@dataclass(frozen=True)
class Needs:
    """What a program needs of a device beyond what every device has."""

    nodes: Mapping[Feature, tuple[int, ...]] = field(default_factory=dict)
    """The nodes that need each feature."""
    assumed: frozenset[Feature] = frozenset()
    """Features that the device description does not mention."""

    def facts(self) -> list[dict[str, Any]]:
        """The needs as plain values, for ``plan.json``."""
        return [
            {"feature": _FEATURES[one].key, "assumed": one in self.assumed, "nodes": list(self.nodes[one])}
            for one in sorted(self.nodes)
        ]


@dataclass(frozen=True)
class _Words:
    """A feature's key in a device file, and its phrases: what code does with it, what a device without it has."""

    key: str
    does: str
    lacks: str
    without: str = ""
    """The key to fall back on if this one is missing."""


_FEATURES = {
    Feature.F64: _Words("fp64", "computes in f64", "no f64"),
    Feature.F16: _Words("fp16", "computes in f16", "no f16 arithmetic"),
    Feature.I64: _Words("int64", "computes with 64-bit integers", "no 64-bit integers"),
    Feature.I16: _Words("int16", "computes with 16-bit integers", "no 16-bit integers"),
    Feature.I8: _Words("int8", "computes with 8-bit integers", "no 8-bit integers"),
    Feature.STORE8: _Words("storage_8bit", "reads or writes 8-bit elements", "no 8-bit storage"),
    Feature.STORE16: _Words("storage_16bit", "reads or writes 16-bit elements", "no 16-bit storage"),
    Feature.ADDRESSES: _Words("buffer_addresses", "accesses memory by address", "no buffer addresses"),
    Feature.SUBGROUPS: _Words("subgroup_ops", "combines values of a subgroup", "no subgroup operations"),
    Feature.SHUFFLE: _Words("subgroup_shuffle", "shuffles subgroup values", "no subgroup shuffles", "subgroup_ops"),
}


def feature_key(feature: Feature) -> str:
    """The key of a feature in a device file.

    >>> feature_key(Feature.F64)
    'fp64'
    """
    return _FEATURES[feature].key


def stated(arch: DeviceArch, feature: Feature) -> bool | None:
    """What a device description says about a feature; None if it does not mention it.

    >>> stated(DeviceArch.named("ada_mock"), Feature.SHUFFLE), stated(DeviceArch.named("ada_mock"), Feature.F64)
    (True, None)
    """
    words = _FEATURES[feature]
    found: bool | None = getattr(arch.features, words.key)
    return getattr(arch.features, words.without) if found is None and words.without else found


def lacking(arch: DeviceArch, needed: Requirement) -> Iterator[str]:
    """What a device lacks, as phrases: what code does, and what the device has instead."""
    for feature in sorted(needed.features):
        if stated(arch, feature) is False:
            words = _FEATURES[feature]
            yield f"{words.does}, and {arch.title!r} has {words.lacks} (features.{words.key})"
    limits = arch.limits
    rows = limits.max_workgroup_size
    for number, most, does, key in (
        (needed.threads, limits.max_workgroup_invocations, "groups of {} threads", "max_workgroup_invocations"),
        (needed.threads, rows[0] if rows else None, "groups of {} threads", "max_workgroup_size"),
        (needed.shared_bytes, limits.max_shared_memory_bytes, "{} bytes of shared memory", "max_shared_memory_bytes"),
        (needed.argument_bytes, limits.max_push_constants_bytes, "{} bytes of arguments", "max_push_constants_bytes"),
        (needed.iterations, limits.max_loop_iterations, "{} iterations in one thread", "max_loop_iterations"),
    ):
        if most is not None and number > most:
            yield f"needs {does.format(number)}, and {arch.title!r} allows {most} (limits.{key})"


def required(graph: Graph, arch: DeviceArch, kernels: Iterable[tuple[Sequence[int], Requirement]]) -> Needs:
    """The needs of kernels, each given with the nodes that it computes.

    The error names every node that the device cannot compute.
    """
    found, nodes = [*kernels], {node.index: node for node in graph.walk()}
    problems = [
        Diagnostic(Code.MISSING_FEATURE, f"{_subject(own, nodes)} {what}", _place(own, nodes), _ADVICE)
        for own, needed in found
        for what in lacking(arch, needed)
    ]
    if problems:
        raise GraphError(*dict.fromkeys(problems))
    users: dict[Feature, set[int]] = {}
    for own, needed in found:
        for feature in needed.features:
            users.setdefault(feature, set()).update(own)
    assumed = frozenset(feature for feature in users if stated(arch, feature) is None)
    return Needs({feature: tuple(sorted(own)) for feature, own in users.items()}, assumed)


_ADVICE = "choose another dtype or op there, or correct the device file: a key that it omits is left to the driver"


def _subject(nodes: Iterable[int], graph: Mapping[int, Node]) -> str:
    names = dict.fromkeys(_name(graph[one]) for one in nodes if one in graph)
    return " with ".join(names) or "the graph"


def _name(node: Node) -> str:
    return node.kind.op if isinstance(node.kind, Op) else node_head(node)


def _place(nodes: Iterable[int], graph: Mapping[int, Node]) -> Place | None:
    return next((graph[one].span for one in nodes if one in graph), None)
