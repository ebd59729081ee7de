"""Prepares graphs and the inputs of their steps from options, for ``run``, ``trace`` and ``step``."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.sizes import SizeError, dimension
from openinfer.check.step_sizes import StepSizes
from openinfer.cli.feeds import Feed, parsed_inputs, supply
from openinfer.cli.graph import loaded_graph
from openinfer.cli.options import Scheduler, parsed_sizes
from openinfer.device import Device
from openinfer.errors import Code, Diagnostic, ExecutionError, nearest
from openinfer.ir import MemoryKind
from openinfer.ir.expr import names
from openinfer.oinf import ModelLoader
from openinfer.ops import Shape
from openinfer.sim import Executor, Simulator, TraceLevel

if TYPE_CHECKING:
    from openinfer.synth.devices.description import DeviceArch


def prepared(
    graph: str,
    model: str | None = None,
    sizes: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    *,
    strict: bool = False,
    scheduler: str = Scheduler.SEQUENTIAL,
    node_budget: int | None = None,
    level: TraceLevel | str | None = None,
    device: str = Device.CPU,
    compare: str | None = None,
) -> "tuple[Executor, InputSource]":
    """Prepare a graph file to run, and the inputs to insert before each of its steps.

    ``sizes`` and ``inputs`` are the texts of the options; without a ``level`` the environment decides on the trace.
    """
    given, feeds = parsed_sizes(sizes), parsed_inputs(inputs)
    source = loaded_graph(graph)
    simulator = Simulator(
        ModelLoader.open(model) if model is not None else None,
        _simulated_device(device),
        sizes=given,
        strict=strict,
        scheduler=str(scheduler),
        node_budget=node_budget,
        compare=compare,
    )
    if level is not None:
        simulator.with_trace(level)
    executor = simulator.make_executor(source)
    return executor, InputSource(executor.bound, feeds)


def _simulated_device(name: str) -> "Device | DeviceArch":
    """The device to simulate; the CPU needs no description."""
    if name in (Device.CPU, "host"):
        return Device.CPU
    from openinfer.cli.devices import device_called

    return device_called(name)


class InputSource:
    """The inputs of every step of a bound graph.

    A generated input has the sizes that ``--size`` or the other inputs of the step give, else their bounds. Files stay
    open until the source is closed; it is a context manager.
    """

    def __init__(self, bound: BoundGraph, feeds: Mapping[str, Feed]) -> None:
        self._bound = bound
        self._resources = ExitStack()
        wanted = {one.name: one for one in bound.vars.values() if one.kind is MemoryKind.DYNAMIC}
        _require_all(bound, wanted, feeds)
        with ExitStack() as resources:
            self._supplies = {name: supply(one, feeds[name], resources) for name, one in wanted.items()}
            self._agreed()
            self._resources = resources.pop_all()

    @property
    def steps(self) -> int | None:
        """The number of steps that there are values for, if an input has a slice for each; None for any number."""
        return min((one.steps for one in self._supplies.values() if one.steps is not None), default=None)

    def open_sizes(self) -> dict[str, int]:
        """The dynamic sizes of inputs that no value determines, with their bounds."""
        used = {name for one in self._supplies for dim in self._bound.vars[one].dims or () for name in names(dim)}
        known = self._agreed().dynamic
        return {name: bound for name, bound in self._bound.bounds.items() if name in used and name not in known}

    def values(self, step: int, chosen: Mapping[str, int] | None = None) -> dict[str, Any]:
        """The inputs to insert before a step; steps are counted from 0.

        Sizes that the values do not determine are as ``chosen``, else at their bounds.
        """
        sizes = self._agreed()
        known = {**self._bound.bounds, **(chosen or {}), **sizes.dynamic}
        try:
            return {
                name: one.value(step, _shape(self._bound.vars[name], known, sizes))
                for name, one in self._supplies.items()
            }
        except MemoryError as error:
            message = "there is not enough memory for the inputs"
            raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, message)) from error

    def _agreed(self) -> StepSizes:
        """The sizes given by values with shapes of their own, which must fit and agree."""
        sizes = StepSizes(self._bound)
        shapes = {name: one.shape for name, one in self._supplies.items() if one.shape is not None}
        sizes.agree_together(shapes, complete=False)
        return sizes

    def close(self) -> None:
        """Close the files."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _require_all(bound: BoundGraph, wanted: Mapping[str, BoundVar], feeds: Mapping[str, Feed]) -> None:
    problems = []
    for name in (name for name in feeds if name not in wanted):
        kind = f"{name!r} is {bound.vars[name].kind.value}, not an input" if name in bound.vars else None
        advice = nearest(name, wanted) or (f"inputs are {', '.join(wanted)}" if wanted else "there are no inputs")
        problems.append(Diagnostic(Code.UNKNOWN_VARIABLE, kind or f"there is no input {name!r}", None, advice))
    for name, variable in wanted.items():
        if name not in feeds:
            rule = "randn:0" if variable.dtype.kind == "float" else "zeros"
            message = f"there is no value for the input {name!r} ({variable.type})"
            span = variable.decl.span if variable.decl else None
            problems.append(Diagnostic(Code.NOT_INSERTED, message, span, f"for example: --input {name}={rule}"))
    if problems:
        raise ExecutionError(*problems)


def _shape(variable: BoundVar, known: Mapping[str, int], sizes: StepSizes) -> Shape:
    assert variable.dims is not None
    try:
        return tuple(dimension(dim, known, sizes.lookup) for dim in variable.dims)
    except SizeError as error:
        message = f"the input {variable.name!r} has no shape: {error.message}"
        raise ExecutionError(Diagnostic(error.code, message, None, error.advice)) from error
