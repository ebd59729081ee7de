"""Modules imported from PyTorch next to what PyTorch computes, in the simulator and in generated C."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.synth.flags import USUAL

from openinfer import ModelLoader, Simulator, Synthesizer, load_graph
from openinfer.importing import Imported, import_torch


def arrays(tree: Any) -> list[Any]:
    """The tensors of a result as arrays, in the order of outputs."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [as_array(one) for one in leaves if isinstance(one, torch.Tensor)]


def as_array(tensor: torch.Tensor) -> Any:
    """A tensor as an array; bf16 as f32, which holds it."""
    plain = tensor.detach()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy().copy()


def require_torch_agreement(
    module: torch.nn.Module,
    folder: Path,
    steps: Sequence[Sequence[torch.Tensor]],
    *,
    tolerance: float = 1e-5,
    in_c: bool = False,
    **options: Any,
) -> tuple[str, Imported]:
    """Import a module and run it for some steps as PyTorch does; its text and what was written."""
    module.eval()
    before = {name: tensor.clone() for name, tensor in module.named_buffers()}
    found = import_torch(module, steps[0], folder, name="net", **options)
    with torch.no_grad():
        for name, tensor in module.named_buffers():
            tensor.copy_(before[name])
    graph = load_graph(found.graph)
    with ModelLoader.open(found.model) as weights:
        machines: list[Any] = [Simulator(weights).make_executor(graph)]
        if in_c:
            machines.append(Synthesizer().synthesize(weights, graph).build(flags=USUAL))
        for given in steps:
            feeds = dict(zip(found.inputs.values(), given, strict=True))
            with torch.no_grad():
                wanted = arrays(module(*(one.clone() for one in given)))
            for machine in machines:
                machine.insert(**{name: bits(tensor) for name, tensor in feeds.items()})
                machine.run_step()
                _require_close(machine, found.outputs, wanted, tolerance)
    return Path(found.graph).read_text(), found


def bits(tensor: torch.Tensor) -> Any:
    """A tensor as an array that executors take."""
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _require_close(machine: Any, outputs: Mapping[str, str], wanted: Sequence[Any], tolerance: float) -> None:
    assert len(outputs) == len(wanted)
    for variable, want in zip(outputs.values(), wanted, strict=True):
        result = np.asarray(machine.fetch(variable))
        assert result.shape == want.shape, (variable, result.shape, want.shape)
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
        with np.errstate(invalid="ignore"):
            apart = np.where(result == want, 0, np.abs(result.astype(np.float64) - want.astype(np.float64)))
        assert np.all(apart <= tolerance * max(largest, 1e-6)), (variable, apart.max())
