"""How to quantize weights, as given to ``openinfer pack --quantize``."""

import re
from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DType, dtype_of
from openinfer.errors import Code, Diagnostic, OinfError
from openinfer.oinf.quant import GROUP_DTYPES, Scheme

QUANTIZED_DTYPES = ("i8", "u8", "i4", "u4", "i2")
LAST_AXIS = -1
_GROUP = 32
_Mode = Literal["per_tensor", "per_channel", "per_group"]


@dataclass(frozen=True)
class QuantGroups:
    """Quantization groups: each run of ``size`` elements along the axis has a scale, stored in a dtype of its own."""

    size: int
    scales: DType


@dataclass(frozen=True)
class QuantSpec:
    """How to quantize: target dtype, scheme, the axis of channels or groups (None for per tensor), and groups.

    >>> QuantSpec.parse("i8:symmetric:per_channel:axis=0")
    QuantSpec(dtype=<dtype i8>, scheme='symmetric', axis=0, groups=None)
    >>> str(QuantSpec.parse("u4:per_group"))
    'u4:asymmetric:per_group:group=32:scales=f16'
    """

    dtype: DType
    scheme: Scheme = "symmetric"
    axis: int | None = None
    """``LAST_AXIS`` stands for the last axis of any tensor."""
    groups: QuantGroups | None = None

    @classmethod
    def parse(cls, text: str) -> "QuantSpec":
        """Parse ``DTYPE[:symmetric|asymmetric][:per_tensor|per_channel|per_group][:axis=N][:group=N][:scales=F]``."""
        name, *words = text.split(":")
        if name not in QUANTIZED_DTYPES:
            raise _bad_spec(text, f"the dtype must be one of {', '.join(QUANTIZED_DTYPES)}")
        scheme: Scheme = "asymmetric" if name.startswith("u") else "symmetric"
        mode: _Mode = "per_tensor"
        axis = size = scales = None
        said: list[str] = []
        for word in words:
            match word.partition("="):
                case ("symmetric" | "asymmetric" as scheme, "", ""):
                    said.append("the scheme")
                case ("per_tensor" | "per_channel" | "per_group" as mode, "", ""):
                    said.append("per_tensor, per_channel or per_group")
                case ("axis", "=", number) if re.fullmatch("[0-9]{1,2}", number):
                    said.append("the axis")
                    axis = int(number)
                case ("group", "=", number) if re.fullmatch("[1-9][0-9]{0,8}", number):
                    said.append("the group")
                    size = int(number)
                case ("scales", "=", stored) if stored in [one.name for one in GROUP_DTYPES]:
                    said.append("the dtype of scales")
                    scales = dtype_of(stored)
                case _:
                    raise _bad_spec(text, f"{word!r} is not understood")
            if said[-1] in said[:-1]:
                raise _bad_spec(text, f"{said[-1]} is given twice")
        if axis is not None and mode == "per_tensor":
            raise _bad_spec(text, "axis=N needs per_channel or per_group")
        if mode == "per_group":
            groups = QuantGroups(size or _GROUP, scales or dtype_of("f16"))
            return cls(dtype_of(name), scheme, LAST_AXIS if axis is None else axis, groups)
        if size is not None or scales is not None:
            raise _bad_spec(text, "group=N and scales=DTYPE need per_group")
        return cls(dtype_of(name), scheme, (axis or 0) if mode == "per_channel" else None)

    def is_for(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor has the axis."""
        return self.axis is None or max(self.axis, 0) < len(shape)

    def __str__(self) -> str:
        mode = "per_tensor" if self.axis is None else "per_channel" if self.groups is None else "per_group"
        words = [self.dtype.name, self.scheme, mode]
        words += [] if self.groups is None else [f"group={self.groups.size}"]
        words += [] if self.axis is None or self.axis == LAST_AXIS else [f"axis={self.axis}"]
        words += [] if self.groups is None else [f"scales={self.groups.scales.name}"]
        return ":".join(words)


def _bad_spec(text: str, reason: str) -> OinfError:
    advice = (
        "write DTYPE[:symmetric|asymmetric][:per_tensor|per_channel[:axis=N]|per_group[:group=N][:axis=N]], "
        "e.g. i8:symmetric:per_channel:axis=0"
    )
    return OinfError(Diagnostic(Code.BAD_PACK_OPTION, f"cannot quantize as {text!r}: {reason}", help=advice))
