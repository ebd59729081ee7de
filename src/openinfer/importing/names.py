"""Names values and weights after their modules in the file, not after node numbers."""

import re
from collections.abc import Sequence
from dataclasses import replace

from openinfer.importing.draft import Draft, DraftLoop, DraftOp, DraftStep, DraftValue, KnownTensor
from openinfer.ops import OPS, spec_of

_NODE = re.compile(r"[A-Z][A-Za-z0-9]*?(_\d+)?")
"""How exporters name a node in its module: its op type, perhaps with a number."""
_ANONYMOUS = re.compile(r"(onnx::\w+|val_?\d*|_v_?\d+|[A-Z]\w*?_?\d+|\d+|const\w*|Constant\w*|)(_output_\d+)?(__\d+)?")
_SPEAKS_FOR_ITSELF = frozenset(
    ("linear", "conv1d", "conv2d", "conv3d", "layer_norm", "rms_norm", "batch_norm", "gather", "embedding")
)
"""Ops that are a module of their own: their result takes the name of the module."""
_ROLES = frozenset(("excess", "column_sums"))
"""Hints of tensors that importers create; they belong to the module that reads them."""
_SLOTS = {"w": "weight", "gamma": "weight", "beta": "bias", "b": "weight", "w_ih": "weight_ih", "w_hh": "weight_hh"}


def module_path(node: str) -> tuple[str, ...]:
    """The modules around a node, taken from its name.

    >>> module_path("/encoder/layer.0/attention/Add_1"), module_path("Conv_12")
    (('encoder', 'layer.0', 'attention'), ())
    """
    parts = [part for part in node.removesuffix("_output_0").split("/") if part]
    if len(parts) > 1:
        return tuple(parts[:-1])
    return ()


def value_name(hint: str, op: str) -> str:
    """The name of a value: its module and the op that computes it, or its own name if it has one.

    >>> value_name("/encoder/layer.0/attention/self/query/Add_output_0", "linear")
    'query'
    >>> value_name("/encoder/output/Add_output_0", "add"), value_name("123", "relu"), value_name("hidden", "relu")
    ('output_add', 'relu', 'hidden')
    >>> value_name("/encoder/relu_1/Relu_output_0", "relu")
    'relu_1'
    """
    path = module_path(hint)
    if path:
        is_module_of_its_own = op in _SPEAKS_FOR_ITSELF or re.fullmatch(rf"{op}[._]?\d*", path[-1], re.IGNORECASE)
        return path[-1] if is_module_of_its_own else f"{path[-1]}_{op}"
    own = hint.removesuffix("_output_0").removesuffix(":0").strip("/")
    return op if _ANONYMOUS.fullmatch(own) or _NODE.fullmatch(own) else own


def with_names(draft: Draft) -> Draft:
    """The draft with unnamed weights named after the modules that they belong to."""
    renamed: dict[int, KnownTensor] = {}
    return replace(draft, steps=_named(draft.steps, renamed))


def _named(steps: Sequence[DraftStep], renamed: dict[int, KnownTensor]) -> tuple[DraftStep, ...]:
    found: list[DraftStep] = []
    for step in steps:
        match step:
            case DraftOp():
                inputs = tuple(
                    _known(one, step, slot, renamed) if isinstance(one, KnownTensor) else one
                    for slot, one in enumerate(step.inputs)
                )
                found.append(replace(step, inputs=inputs))
            case DraftLoop():
                found.append(replace(step, body=_named(step.body, renamed)))
            case _:
                found.append(step)
    return tuple(found)


def _known(tensor: KnownTensor, step: DraftOp, slot: int, renamed: dict[int, KnownTensor]) -> KnownTensor:
    found = renamed.get(id(tensor))
    if found is not None:
        return found
    path = module_path(step.origin.node)
    is_plain = "/" not in tensor.hint and not _ANONYMOUS.fullmatch(tensor.hint) and tensor.hint not in _ROLES
    is_number = tensor.array.size == 1
    if is_plain or (is_number and not path):
        found = tensor
    else:
        name = _role(tensor) if is_number or tensor.hint in _ROLES else spec_of(OPS[step.op], slot).name
        result = step.outputs[0]
        own = value_name(result.hint, step.op) if isinstance(result, DraftValue) else step.op
        module = path or (_beside(step) or own,)
        found = replace(tensor, hint=".".join((*module, _SLOTS.get(name, name))))
    renamed[id(tensor)] = found
    return found


def _role(tensor: KnownTensor) -> str:
    """The role of a number that differs between the layers of a loop; elsewhere numbers are literals."""
    return tensor.hint if tensor.hint in _ROLES else "scale" if tensor.dtype.kind == "float" else "number"


def _beside(step: DraftOp) -> str:
    """The module of a bias that the same op reads; the weights belong to it, too."""
    hints = [one.hint for one in step.inputs if isinstance(one, KnownTensor)]
    return next((hint.removesuffix(".bias") for hint in hints if hint.endswith(".bias")), "")


def family_pattern(hints: Sequence[str]) -> tuple[str, str] | None:
    """The text before and after the layer number, if names differ in nothing else and it counts from 0.

    >>> family_pattern(["layer.0.w", "layer.1.w"]), family_pattern(["a", "b"])
    (('layer.', '.w'), None)
    """
    parts = [re.split(r"(\d+)", hint) for hint in hints]
    if len({len(part) for part in parts}) != 1:
        return None
    differing = [at for at, texts in enumerate(zip(*parts, strict=True)) if len(set(texts)) > 1]
    if len(differing) != 1 or [part[differing[0]] for part in parts] != [str(one) for one in range(len(hints))]:
        return None
    at = differing[0]
    return "".join(parts[0][:at]), "".join(parts[0][at + 1 :])


def common_name(hints: Sequence[str]) -> str:
    """The common part of names, without the number in which they differ.

    >>> common_name(["layer.0.w", "layer.1.w"])
    'layer.w'
    """
    parts = [re.split(r"(\d+)", hint) for hint in hints]
    if len({len(part) for part in parts}) != 1:
        return hints[0]
    kept = [texts[0] for texts in zip(*parts, strict=True) if len(set(texts)) == 1]
    return re.sub(r"[._/]{2,}", ".", "".join(kept)) or hints[0]
