"""The sources of weights: safetensors, npz, torch state dicts, other ``.oinf`` files.

A source lists its tensors without reading them, and reads any run of elements on demand. Nothing here executes code
from a file.
"""

from openinfer.oinf.sources.opening import open_source
from openinfer.oinf.sources.tensor import SourceTensor, TensorSource

__all__ = ["SourceTensor", "TensorSource", "open_source"]
