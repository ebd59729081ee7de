"""OpenInfer: explicit inference graphs, simulated step by step and synthesized to plain source code.

The public names are imported when they are first used, so that ``import openinfer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openinfer._version import VERSION
from openinfer.backends import register

if TYPE_CHECKING:
    from openinfer.check import bind
    from openinfer.check.bound import BoundGraph
    from openinfer.check.results import Outputs
    from openinfer.device import Device
    from openinfer.dtypes import DTYPES, DType, dtype_of
    from openinfer.errors import (
        Code,
        DeviceError,
        Diagnostic,
        ExecutionError,
        GraphError,
        ImportingError,
        MissingExtraError,
        OinfError,
        OpenInferError,
        TensorError,
    )
    from openinfer.ir import Graph
    from openinfer.ir.builder import GraphBuilder
    from openinfer.lang import graph, load_graph
    from openinfer.oinf import ModelLoader
    from openinfer.quantizing import QuantizeReport, quantize
    from openinfer.sim import Event, Executor, SimBackend, SimSession, Simulator, TraceLevel, format_truncated
    from openinfer.synth.devices.description import DeviceArch, DeviceSpec
    from openinfer.synth.passes.fuse.fuse import Fuse
    from openinfer.synth.passes.simplify import Simplify
    from openinfer.synth.pipeline import Synthesizer
    from openinfer.synth.plan import Plan
    from openinfer.synth.report.profile import Profile
    from openinfer.synth.run.module import CompiledModule
    from openinfer.synth.targets.cpu.divide import Divide
    from openinfer.synth.targets.target import Passes
    from openinfer.synth.tuning.records import Tuned
    from openinfer.synth.tuning.tune import Tune
    from openinfer.tensor import Tensor

__version__ = VERSION
register("openinfer.synth.nodes")

_HOMES = {
    "DTYPES": "dtypes",
    "BoundGraph": "check.bound",
    "Code": "errors",
    "CompiledModule": "synth.run.module",
    "DType": "dtypes",
    "Device": "device",
    "DeviceArch": "synth.devices.description",
    "DeviceError": "errors",
    "DeviceSpec": "synth.devices.description",
    "Diagnostic": "errors",
    "Divide": "synth.targets.cpu.divide",
    "Event": "sim",
    "ExecutionError": "errors",
    "Executor": "sim",
    "Fuse": "synth.passes.fuse.fuse",
    "Graph": "ir",
    "GraphBuilder": "ir.builder",
    "GraphError": "errors",
    "ImportingError": "errors",
    "MissingExtraError": "errors",
    "ModelLoader": "oinf",
    "OinfError": "errors",
    "OpenInferError": "errors",
    "Outputs": "check.results",
    "Passes": "synth.pipeline",
    "Plan": "synth.plan",
    "Profile": "synth.report.profile",
    "QuantizeReport": "quantizing",
    "SimBackend": "sim",
    "SimSession": "sim",
    "Simplify": "synth.passes.simplify",
    "Simulator": "sim",
    "Synthesizer": "synth.pipeline",
    "Tensor": "tensor",
    "TensorError": "errors",
    "TraceLevel": "sim",
    "Tune": "synth.tuning.tune",
    "Tuned": "synth.tuning.records",
    "bind": "check",
    "dtype_of": "dtypes",
    "format_truncated": "sim",
    "graph": "lang",
    "load_graph": "lang",
    "quantize": "quantizing",
}
_PACKAGES = (
    *("check", "device", "dtypes", "errors", "importing", "ir", "lang", "loops", "oinf", "ops", "quantizing", "sim"),
    *("synth", "tensor"),
)
"""Subpackages that are loaded on first use: ``import openinfer; openinfer.oinf.save_file(...)``."""

__all__ = [
    "DTYPES",
    "BoundGraph",
    "Code",
    "CompiledModule",
    "DType",
    "Device",
    "DeviceArch",
    "DeviceError",
    "DeviceSpec",
    "Diagnostic",
    "Divide",
    "Event",
    "ExecutionError",
    "Executor",
    "Fuse",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "ImportingError",
    "MissingExtraError",
    "ModelLoader",
    "OinfError",
    "OpenInferError",
    "Outputs",
    "Passes",
    "Plan",
    "Profile",
    "QuantizeReport",
    "SimBackend",
    "SimSession",
    "Simplify",
    "Simulator",
    "Synthesizer",
    "Tensor",
    "TensorError",
    "TraceLevel",
    "Tune",
    "Tuned",
    "__version__",
    "bind",
    "dtype_of",
    "format_truncated",
    "graph",
    "load_graph",
    "quantize",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        from openinfer.errors import nearest

        known = nearest(name, [*__all__, *_PACKAGES])
        message = f"module {__name__!r} has no attribute {name!r}{f': {known}' if known else ''}"
        raise AttributeError(message)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
