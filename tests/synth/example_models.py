"""Models for the example graphs that have none of their own: every constant they name, of some size, with zeros.

Small integers are quantized numbers.
"""

from itertools import product
from pathlib import Path

import numpy as np

from openinfer import Graph, ModelLoader
from openinfer.ir import Assign, Loop, MemoryKind, VarDecl
from openinfer.ir.expr import evaluate, names
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file

LAYERS = 3
USUAL = 16
SIZES = {"num_layers": LAYERS, "L": LAYERS, "layers": LAYERS, "N": 2, "F": 4, "B": 2, "G": 2, "P": 256}
"""Sizes that cannot be what they usually are."""


def made_up(graph: Graph, path: Path) -> ModelLoader:
    """A model that a graph can be bound to."""
    nodes = [node.kind for node in graph.walk()]
    used = [dim for one in graph.vars.values() for dim in (*one.dims, *(bound for _, bound in one.fixed))]
    used += [dim for kind in nodes if isinstance(kind, Assign) for dim in kind.dims or ()]
    used += [bound for kind in nodes if isinstance(kind, Loop) for bound in (kind.start, kind.end)]
    used += [size.value for size in graph.sizes.values()]
    known = {*graph.sizes, *graph.vars}
    sizes = {name: SIZES.get(name, USUAL) for one in used for name in names(one) if name not in known}

    def size(name: str) -> int:
        return sizes[name] if name in sizes else evaluate(graph.sizes[name].value, size)

    tensors: dict[str, TensorSpec] = {}
    for one in graph.vars.values():
        if one.kind is MemoryKind.CONSTANT or one.ref_name is not None or one.pattern is not None:
            shape = tuple(evaluate(dim, size) for dim in one.dims)
            is_small = one.dtype.kind in ("int", "uint") and one.dtype.bits <= 8
            quant = QuantParams("symmetric", QuantScale.per_tensor(1.0)) if is_small else None
            spec = TensorSpec(np.zeros(shape, one.dtype.array), one.dtype, quant=quant)
            tensors |= dict.fromkeys(_entries(one), spec)
    save_file(path, tensors, sizevars=sizes)
    return ModelLoader.open(path)


def _entries(one: VarDecl) -> list[str]:
    if one.pattern is None:
        return [one.ref_name or one.name]
    every = product(range(LAYERS), repeat=len(one.table_indices))
    return [one.pattern.format(**dict(zip(one.table_indices, key, strict=True))) for key in every]
