"""Small ONNX models for tests, and what the importer makes of them next to ONNX Runtime."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from openinfer import ModelLoader, Simulator, load_graph
from openinfer.importing import Imported, import_onnx

TYPES = {
    "f32": TensorProto.FLOAT,
    "i64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "i32": TensorProto.INT32,
    "u8": TensorProto.UINT8,
    "i8": TensorProto.INT8,
}
Dims = Sequence[int | str | None]


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Dims]],
    outputs: Mapping[str, tuple[str, Dims | None]],
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> Any:
    """A model of these nodes."""
    infos = [
        [helper.make_tensor_value_info(name, TYPES[dtype], dims) for name, (dtype, dims) in values.items()]
        for values in (inputs, outputs)
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "net", infos[0], infos[1], tensors)
    domains = sorted({one.domain for one in nodes} - {""})
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


node = helper.make_node


def imported(made: Any, folder: Path, **options: Any) -> Imported:
    """The import of a model."""
    path = folder / "net.onnx"
    onnx.save(made, path)
    return import_onnx(path, folder / "out", **options)


def text(found: Imported) -> str:
    """The text of an imported graph."""
    return Path(found.graph).read_text()


def require_agreement(
    made: Any,
    folder: Path,
    feeds: Mapping[str, Any],
    tolerance: float = 1e-5,
    *,
    is_precise: bool = False,
    **options: Any,
) -> str:
    """Import a model, compare its results with those of ONNX Runtime, and give its text.

    Without VNNI, ONNX Runtime adds pairs of products with weights of i8 in 16 bits, which saturate, unless it is to be
    precise; then it does not take everything.
    """
    found = imported(made, folder, **options)
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.x64quantprecision", str(int(is_precise)))
    session = onnxruntime.InferenceSession(os.fspath(folder / "net.onnx"), settings)
    fixed = {
        one.name: np.asarray(value)
        for one in session.get_inputs()
        for name, value in (options.get("fixed") or {}).items()
        if one.name == name
    }
    wanted = session.run(None, {**feeds, **fixed})
    with ModelLoader.open(found.model) as weights:
        executor = Simulator(weights).make_executor(load_graph(found.graph))
        executor.insert(**{found.inputs[name]: value for name, value in feeds.items()})
        executor.run_step()
        for one, want in zip(session.get_outputs(), wanted, strict=True):
            result = executor.fetch(found.outputs[one.name])
            assert result.shape == want.shape
            assert result.dtype == want.dtype
            if want.dtype.kind in "iu":  # codes: by how many steps they differ
                assert np.abs(result.astype(np.int64) - want.astype(np.int64)).max(initial=0) <= tolerance
            else:
                assert np.allclose(result, want, rtol=tolerance, atol=tolerance)
    return text(found)
