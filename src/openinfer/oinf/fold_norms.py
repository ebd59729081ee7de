"""Folds batch norms into the weights and bias of the layer before them, while weights are packed.

With ``a = gamma / sqrt(var + eps)``, a layer's weights are multiplied by the ``a`` of their feature, which is their
first axis, and its bias becomes ``beta + (bias - mean) * a``, both computed in f64 and rounded once. The graph then has
no node for the norm.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from openinfer.errors import Code, Diagnostic, OinfError
from openinfer.oinf.options import bad_option
from openinfer.oinf.sources import SourceTensor

TensorsByName = Mapping[str, SourceTensor]
_FORM = "LAYER=NORM or LAYER=NORM:eps=E, with as many * in NORM as in LAYER"
_EPS = 1e-5
_GAMMA, _BETA = ("weight", "gamma"), ("bias", "beta")
_MEAN, _VAR = ("running_mean", "moving_mean", "mean"), ("running_var", "moving_variance", "var")
_REST = ("num_batches_tracked",)


@dataclass(frozen=True)
class NormRule:
    """A layer and the batch norm that follows it, by the prefixes of the names of their tensors."""

    text: str
    layer: re.Pattern[str]
    norm: str
    eps: float

    @classmethod
    def parse(cls, text: str) -> "NormRule":
        """Parse a rule as it is written on the command line.

        >>> NormRule.parse("net.*.conv=net.*.bn:eps=1e-3").norm_of("net.4.conv")
        'net.4.bn'
        """
        layer, _, rest = text.partition("=")
        norm, _, option = rest.partition(":")
        said = re.fullmatch(r"eps=(.+)", option)
        if not layer or not norm or layer.count("*") != norm.count("*") or (option and said is None):
            raise bad_option(text, _FORM)
        try:
            eps = _EPS if said is None else float(said[1])
        except ValueError as error:
            raise bad_option(text, _FORM) from error
        if not 0 <= eps < np.inf:
            raise bad_option(text, _FORM)
        pattern = "(.+)".join(map(re.escape, layer.split("*")))
        return cls(text, re.compile(pattern), norm, eps)

    def norm_of(self, layer: str) -> str | None:
        """The norm that follows a layer, or None if the rule does not match the layer."""
        found = self.layer.fullmatch(layer)
        if found is None:
            return None
        first, *pieces = self.norm.split("*")
        return first + "".join(part + piece for part, piece in zip(found.groups(), pieces, strict=True))


def with_folded_norms(tensors: TensorsByName, texts: Sequence[str]) -> tuple[dict[str, SourceTensor], set[str]]:
    """The tensors with the norms that rules name folded in, and the rules that matched."""
    found, gone, used = dict(tensors), set[str](), set[str]()
    folded: dict[str, str] = {}
    for rule in map(NormRule.parse, texts):
        for name in tensors:
            layer, _, kind = name.rpartition(".")
            norm = rule.norm_of(layer) if kind == "weight" else None
            if norm is None or ("*" in rule.norm and not any(one.startswith(f"{norm}.") for one in tensors)):
                continue
            if layer in folded:
                raise _wrong(f"both {folded[layer]!r} and {rule.text!r} fold a batch norm into {layer!r}")
            folded[layer] = rule.text
            used.add(rule.text)
            found |= _Fold(tensors, layer, norm, rule.eps).tensors()
            gone |= {f"{norm}.{part}" for part in (*_GAMMA, *_BETA, *_MEAN, *_VAR, *_REST)}
    return {name: tensor for name, tensor in found.items() if name not in gone}, used


@dataclass(frozen=True)
class _Fold:
    """A layer and the norm after it."""

    known: TensorsByName
    layer: str
    norm: str
    eps: float

    def tensors(self) -> dict[str, SourceTensor]:
        """The layer's weights and bias with the norm folded in."""
        weights, old = self.known[f"{self.layer}.weight"], self.known.get(f"{self.layer}.bias")
        self._require_floats(weights)
        mean, var = self._array(_MEAN), self._array(_VAR)
        if mean is None or var is None:
            missing = f"{self.norm}.{(_MEAN if mean is None else _VAR)[0]}"
            raise _wrong(f"there is no tensor {missing!r}, which the batch norm after {self.layer!r} must have")
        gamma, beta = self._array(_GAMMA), self._array(_BETA)
        bias = None if old is None else self._values(old)
        for one in (mean, var, gamma, beta, bias):
            if one is not None and one.shape != weights.shape[:1]:
                raise _wrong(
                    f"{self.layer!r} or {self.norm!r} has {one.size} channels, and the weights {weights.shape}"
                )
        with np.errstate(all="ignore"):
            factor = (1.0 if gamma is None else gamma) / np.sqrt(var + self.eps)
            shift = (0.0 if beta is None else beta) + ((0.0 if bias is None else bias) - mean) * factor
        if not (np.isfinite(factor).all() and np.isfinite(shift).all()):
            raise _wrong(f"the factors of {self.norm!r} are not all finite: they cannot be folded into the weights")
        return {
            f"{self.layer}.weight": _scaled(weights, factor),
            f"{self.layer}.bias": _held(f"{self.layer}.bias", shift, weights if old is None else old),
        }

    def _array(self, names: Sequence[str]) -> Any:
        """A tensor of the norm under any of its names, or None."""
        for name in names:
            tensor = self.known.get(f"{self.norm}.{name}")
            if tensor is not None:
                return self._values(tensor)
        return None

    def _values(self, tensor: SourceTensor) -> Any:
        self._require_floats(tensor)
        return tensor.values(0, tensor.size).astype(np.float64).reshape(tensor.shape)

    def _require_floats(self, tensor: SourceTensor) -> None:
        if not tensor.is_float or tensor.read is None or tensor.quant is not None:
            raise _wrong(f"tensor {tensor.name!r} is {tensor.type_name}: batch norms are folded in floats")


def _scaled(tensor: SourceTensor, factor: Any) -> SourceTensor:
    """A tensor with its first axis multiplied by factors, a run of elements at a time."""
    inner = max(tensor.size // max(factor.size, 1), 1)

    def read(start: int, count: int) -> Any:
        elements = tensor.values(start, count)
        places = np.arange(start, start + count) // inner
        return (elements.astype(np.float64) * factor[places]).astype(elements.dtype)

    return replace(tensor, read=read, stored=None)


def _held(name: str, array: Any, like: SourceTensor) -> SourceTensor:
    values = array.astype(like.values(0, 1).dtype)
    return SourceTensor(
        name, like.type_name, like.dtype, array.shape, lambda start, count: values[start : start + count]
    )


def _wrong(message: str) -> OinfError:
    return OinfError(Diagnostic(Code.BAD_PACK_OPTION, message))
