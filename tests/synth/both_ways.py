"""Whole graphs, run by the simulator and as compiled C, step by step, with everything that can be fetched compared."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tests.synth.flags import TRAPS

from openinfer import DeviceArch, ModelLoader, Simulator, graph
from openinfer.errors import ExecutionError, OpenInferError
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import Storage
from openinfer.synth.run.module import CompiledModule


def planned(text: str, model: ModelLoader | None = None, device: DeviceArch | str = "cpu", **options: Any) -> Plan:
    return Synthesizer(device, name="net", **options).synthesize(model, graph(text))


def same(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    # By their bytes: a zero has a sign. NaNs are all alike.
    wide = one.astype(np.float64), other.astype(np.float64)
    is_nan = np.isnan(wide[0]) & np.isnan(wide[1])
    return bool(np.all((wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1])) | is_nan))


def names_of(module: CompiledModule) -> list[str]:
    program = module._program
    kept = [name for name, home in program.homes.items() if home.storage is Storage.STATE]
    return [*program.outputs, *kept, *program.tables]


def agree(
    text: str,
    model: ModelLoader | None = None,
    inputs: Callable[[int], Mapping[str, Any]] = lambda _step: {},
    steps: int = 3,
    flags: tuple[str, ...] = TRAPS,
    cc: str = "gcc",
    **options: Any,
) -> CompiledModule:
    """Run steps both ways. Where one fails the other must, and for both the step has not happened."""
    executor = Simulator(model).with_trace("off").make_executor(graph(text))
    module = planned(text, model, **options).build(cc, flags)
    for step in range(steps):
        executor.insert(inputs(step))
        module.insert(inputs(step))
        wanted, found = _failure(executor.run_step), _failure(module.run_step)
        assert (wanted is None) == (found is None), (step, str(wanted), str(found))
        compare(executor, module, step, outputs=wanted is None)
        if wanted is not None:  # what made it fail may not change by itself
            executor.reset()
            module.reset()
            compare(executor, module, step, outputs=False)
    return module


def compare(executor: Any, module: CompiledModule, step: int = 0, *, outputs: bool = True) -> None:
    for name in names_of(module):
        if name in module._program.outputs and not outputs:
            continue
        wanted, found = _fetched(executor, name), _fetched(module, name)
        assert (wanted is None) == (found is None), (step, name, wanted, found)
        assert wanted is None or same(wanted, found), (step, name, wanted, found)


def _fetched(one: Any, name: str) -> Any:
    try:
        return one.fetch(name)
    except ExecutionError:
        return None


def _failure(run: Callable[[], None]) -> OpenInferError | None:
    try:
        run()
    except OpenInferError as error:
        return error
    return None
