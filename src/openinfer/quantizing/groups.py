"""Groups sites that must share one scale, because values move between them as codes."""

from collections.abc import Collection, Mapping
from typing import Protocol

from openinfer.check.bound import BoundOp
from openinfer.ir import Access, Op
from openinfer.quantizing import kinds
from openinfer.quantizing.sites import CodeDefinition, CodeGroup, CodeSite, QuantLayer


class GroupedNodes(Protocol):
    """What grouping needs to know about nodes."""

    def op(self, node: int) -> BoundOp | None:
        """An op node with its parameters."""

    def kind(self, node: int) -> Op:
        """An op node as the source writes it."""

    def path(self, node: int) -> tuple[str, ...]:
        """The indices of the layer loops around a node."""


def grouped(
    nodes: GroupedNodes,
    layers: Mapping[int, QuantLayer],
    moved: Collection[int],
    operands: Mapping[tuple[int, int], CodeSite],
    coded: Collection[CodeDefinition],
    *,
    is_symmetric: bool,
) -> tuple[CodeGroup, ...]:
    """All sites in groups, ordered by their first nodes."""
    sites = {*operands.values(), *(CodeSite(node, Access(name)) for node, name in coded)}
    parent = {site: site for site in sites}

    def root(site: CodeSite) -> CodeSite:
        while parent[site] is not site:
            site = parent[site]
        return site

    ordered = sorted(sites, key=_order)
    for (node, _), site in operands.items():
        if node in moved:
            for access in nodes.kind(node).outputs:
                parent[root(CodeSite(node, Access(access.base)))] = root(site)
    members: dict[CodeSite, list[CodeSite]] = {}
    for site in ordered:
        members.setdefault(root(site), []).append(site)
    centred = {root(site) for site in _centred(nodes, layers, moved, operands)}
    return tuple(
        CodeGroup(number, tuple(found), _shared(nodes, found), is_symmetric or head in centred)
        for number, (head, found) in enumerate(members.items())
    )


def _order(site: CodeSite) -> tuple[int, bool, str]:
    return site.node, not site.is_read, str(site.access)


def _shared(nodes: GroupedNodes, sites: list[CodeSite]) -> tuple[str, ...]:
    """The layer loops that contain all sites."""
    paths = [nodes.path(site.node) for site in sites]
    shared = paths[0]
    for path in paths[1:]:
        same = [one == other for one, other in zip(shared, path, strict=False)]
        shared = shared[: same.index(False) if False in same else len(same)]
    return shared


def _centred(
    nodes: GroupedNodes,
    layers: Mapping[int, QuantLayer],
    moved: Collection[int],
    operands: Mapping[tuple[int, int], CodeSite],
) -> list[CodeSite]:
    """Sites whose zero must have the code 0.

    Factors of a product without stored weights: there is no bias to absorb what zero points add. Operands of transposed
    convolutions, where that differs from position to position. Values padded with zeros in a layer loop: the padding
    value is a parameter, which cannot differ between layers.
    """
    found: list[CodeSite] = []
    for layer in layers.values():
        own = nodes.op(layer.node)
        assert own is not None
        assert own.call is not None
        is_padded = layer.path and kinds.has_padding(layer.op, own.call.params)
        if layer.weights is None or is_padded or layer.op in kinds.TRANSPOSED:
            found += layer.sites
    for (node, _), site in operands.items():
        own = nodes.op(node)
        if node in moved and own is not None and own.record.name == "pad" and nodes.path(node):
            found.append(site)
    return found
