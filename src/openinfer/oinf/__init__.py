"""The ``.oinf`` model file: reading, writing, authoring, verifying, importing weights. Knows nothing of graphs."""

from openinfer.oinf.authoring import SizeVar, TensorSpec, UninitializedTensor, dataclass_to_oinf, write_oinf
from openinfer.oinf.metadata import Bitset, MetadataValue, ScalarValue, metadata_value
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import MetadataInfo, TensorInfo
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.oinf.writer import Writer, rewrite, save_file

__all__ = [
    "Bitset",
    "MetadataInfo",
    "MetadataValue",
    "ModelLoader",
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
    "write_oinf",
]
