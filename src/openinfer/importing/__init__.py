"""Importers: turn models in other formats into readable graphs, with their weights as model files."""

from openinfer.importing.finish import Imported
from openinfer.importing.gguf import import_gguf
from openinfer.importing.gguf_tokenizer import gguf_chat_format, gguf_tokenizer
from openinfer.importing.onnx import import_onnx
from openinfer.importing.pytorch import import_torch

__all__ = ["Imported", "gguf_chat_format", "gguf_tokenizer", "import_gguf", "import_onnx", "import_torch"]
