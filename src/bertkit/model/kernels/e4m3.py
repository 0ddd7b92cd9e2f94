"""The numbers that everything in eight bits agrees on; apart from the kernels, so that no GPU is needed to read them."""

LARGEST = 448.0  # of e4m3
ACTIVATION = 8.0  # activations are stored times this: beyond 56 they saturate, below 0.002 they lose precision
