"""ONNX Runtime behind mlserver: the runtime that its processes load. Runs in the environment of mlserver only."""

from typing import Any

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):  # type: ignore[misc]
    """A model of ONNX; each process of mlserver has one, with one thread."""

    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        uri = self.settings.parameters.uri
        self._session = onnxruntime.InferenceSession(uri, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds: dict[str, Any] = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        (found,) = self._session.run(None, feeds)
        outputs = [NumpyCodec.encode_output("embedding", found)]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs)
