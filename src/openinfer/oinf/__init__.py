"""The ``.oinf`` model file: reading, writing, authoring, verifying, importing weights. Knows nothing of graphs."""

from typing import TYPE_CHECKING, Any

from openinfer.oinf.authoring import SizeVar, TensorSpec, UninitializedTensor, dataclass_to_oinf, write_oinf
from openinfer.oinf.metadata import Bitset, MetadataValue, ScalarValue, metadata_value
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import MetadataInfo, TensorInfo
from openinfer.oinf.quant import QuantOffset, QuantParams, QuantScale, QuantZeroPoint
from openinfer.oinf.writer import Writer, rewrite, save_file

if TYPE_CHECKING:
    from openinfer.oinf.verify import verify_oinf

__all__ = [
    "Bitset",
    "MetadataInfo",
    "MetadataValue",
    "ModelLoader",
    "QuantOffset",
    "QuantParams",
    "QuantScale",
    "QuantZeroPoint",
    "ScalarValue",
    "SizeVar",
    "TensorInfo",
    "TensorSpec",
    "UninitializedTensor",
    "Writer",
    "dataclass_to_oinf",
    "metadata_value",
    "rewrite",
    "save_file",
    "verify_oinf",
    "write_oinf",
]


def __getattr__(name: str) -> Any:
    """Import ``verify_oinf`` on demand, so that ``python -m openinfer.oinf.verify`` runs it only once."""
    if name != "verify_oinf":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from openinfer.oinf.verify import verify_oinf

    return verify_oinf
