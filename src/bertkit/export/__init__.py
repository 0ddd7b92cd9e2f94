"""A BERT becomes an ONNX graph: float32 or eight-bit, for any head, by nodes written here and not by tracing."""
