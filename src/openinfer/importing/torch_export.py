"""Exports a module with ``torch.export`` to the ops that are translated here and core ATen."""

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from openinfer.errors import Code, Diagnostic, MissingExtraError, printable
from openinfer.importing.problems import bad_model


def torch_package() -> Any:
    """The package ``torch``; the error says how to install it."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            Diagnostic(
                Code.MISSING_EXTRA,
                "importing PyTorch modules needs the package torch, which is not installed",
                help="pip install 'openinfer[torch]'",
            )
        ) from error
    return torch


def exported(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any, kept: Collection[str]) -> Any:
    """The program of a module, or a given program, with every op that is not in ``kept`` decomposed."""
    torch = torch_package()
    name = type(module).__name__
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        if not isinstance(module, torch.nn.Module):
            raise bad_model(name, "it is not a torch.nn.Module, nor a torch.export.ExportedProgram")
        program = _refusing(name, lambda: _traced(torch, module, args, kwargs, dynamic))
    return _refusing(name, lambda: _decomposed(torch, program, kept))


def _traced(torch: Any, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any) -> Any:
    with torch.no_grad(), _without_fast_path(torch), _in_inference(module):
        return torch.export.export(module, args, dict(kwargs), dynamic_shapes=dynamic, strict=False)


@contextmanager
def _in_inference(module: Any) -> Iterator[None]:
    """The module in inference mode, restored afterwards."""
    training = [one for one in module.modules() if one.training]
    for one in training:
        one.training = False
    try:
        yield
    finally:
        for one in training:
            one.training = True


@contextmanager
def _without_fast_path(torch: Any) -> Iterator[None]:
    """Attention as separate ops, not fused into one op per layer."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _decomposed(torch: Any, program: Any, kept: Collection[str]) -> Any:
    """The program without in-place ops, and without untranslated ops that PyTorch can decompose."""
    found = _with_decompositions(torch, program, kept, {})
    missing = [
        node.target
        for node in found.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and op_name(node.target) not in kept
    ]
    more = torch._decomp.get_decompositions(missing)  # beyond core ATen
    return _with_decompositions(torch, found, kept, more) if more else found


def _with_decompositions(torch: Any, program: Any, kept: Collection[str], more: Mapping[Any, Any]) -> Any:
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if op_name(op) in kept:
            table.pop(op)
    for op, definition in more.items():
        table[op] = definition
    with torch.no_grad(), _without_fast_path(torch):
        return program.run_decompositions(table)


def op_name(target: Any) -> str:
    """The name of a function that a node calls, without overload: ``aten.add``, ``_operator.mul``."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name).replace("::", ".")
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def _refusing(name: str, action: Any) -> Any:
    """What ``torch.export`` returns; if it fails, the error gives its reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch itself
            return action()
    except Exception as error:
        lines = [printable(line.strip())[:400] for line in str(error).splitlines() if line.strip()]
        first = lines[0] if lines else type(error).__name__
        advice = "torch.export traces the module with the example inputs: try torch.export.export alone first"
        raise bad_model(name, f"torch.export refuses it: {first}", advice, tuple(lines[1:5])) from error
