"""Real ONNX models through the importer: what becomes of them, whether they agree, how fast they are."""
