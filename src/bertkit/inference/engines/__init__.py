"""What computes on a CPU: torch, ONNX Runtime in float32 or int8; chosen in choose.py."""
