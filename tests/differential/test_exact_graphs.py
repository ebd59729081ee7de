"""Random exact graphs: simulator and generated C agree bit for bit, with every pass on and with each one off."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.differential.graphs import Case, random_case

from openinfer import Executor, ModelLoader, Simulator, Synthesizer, graph
from openinfer.oinf import TensorSpec, save_file
from openinfer.synth.module import CompiledModule
from openinfer.synth.synthesizer import Passes

GRAPHS = 40


def model_of(case: Case, folder: Path) -> ModelLoader:
    path = folder / "model.oinf"
    save_file(path, {name: TensorSpec(value, case.dtypes[name]) for name, value in case.tensors.items()})
    return ModelLoader.open(path)


def same(found: Any, wanted: Any) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if wanted.dtype.kind in "fV" and wanted.dtype.itemsize <= 8 and not np.issubdtype(wanted.dtype, np.integer):
        nan = np.isnan(found.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
        return bool(np.all((found.view(f"u{found.itemsize}") == wanted.view(f"u{wanted.itemsize}")) | nan))
    return bool(np.all(found == wanted))


def compare(case: Case, executor: Executor, module: CompiledModule) -> None:
    for step, inputs in enumerate(case.inputs):
        executor.insert(inputs)
        module.insert(inputs)
        executor.run_step()
        module.run_step()
        for name in case.outputs:
            found, wanted = module.fetch(name), executor.fetch(name)
            assert same(found, wanted), f"step {step}, {name}: {found} against {wanted}\n{case.text}"


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_generated_c_agrees_bit_for_bit(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    model = model_of(case, tmp_path)
    own = graph(case.text)
    for passes in (Passes(), Passes(fuse=None)) if seed % 4 == 0 else (Passes(),):
        executor = Simulator(model).with_trace("off").make_executor(own)
        compare(case, executor, Synthesizer(passes=passes).synthesize(model, own).build())


def test_the_graphs_have_every_kind_of_structure() -> None:
    texts = [random_case(seed).text for seed in range(GRAPHS)]
    for word in ("loop", "branch", "barrier", "scope", "where", "cast", "concat", "sum_axis", "bf16", "i4", "bool"):
        assert any(word in text for text in texts), word
