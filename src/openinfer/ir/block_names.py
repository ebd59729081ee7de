"""The names visible in a block besides declared variables; a block that is called has its own."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from openinfer.ir.graph import Assign, Block, BlockParamKind, Graph, walk


@dataclass(frozen=True)
class BlockNames:
    """The names of a block. Blocks without parameters share theirs, which entry assigns."""

    temporaries: Mapping[str, Assign] = field(default_factory=dict)
    """Assigned temporaries, and parameters that are tensors."""
    indices: Set[str] = frozenset()
    prefixes: Set[str] = frozenset()
    hidden: Set[str] = frozenset()
    """Temporaries of entry that are not visible in the block."""
    block: str | None = None
    """The name of the block if it is called, and so has its own names."""


def block_names(graph: Graph) -> dict[str, BlockNames]:
    """The names of every block."""
    plain = [block for block in graph.blocks.values() if block.params is None]
    shared = BlockNames({name: one for block in plain for name, one in _assigned(block).items()})
    return {
        name: shared if block.params is None else _own(block, shared.temporaries)
        for name, block in graph.blocks.items()
    }


def _assigned(block: Block) -> dict[str, Assign]:
    return {node.kind.name: node.kind for node in walk(block.nodes) if isinstance(node.kind, Assign)}


def _own(block: Block, shared: Mapping[str, Assign]) -> BlockNames:
    by_kind = {kind: [param for param in block.params or () if param.kind is kind] for kind in BlockParamKind}
    given = {param.name: Assign(param.name, param.dtype, param.dims) for param in by_kind[BlockParamKind.TENSOR]}
    own = {**_assigned(block), **given}
    return BlockNames(
        own,
        frozenset(param.name for param in by_kind[BlockParamKind.INDEX]),
        frozenset(param.name for param in by_kind[BlockParamKind.PREFIX]),
        frozenset(shared.keys() - own.keys()),
        block.name,
    )
