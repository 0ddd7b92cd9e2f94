"""Triton kernels for one GPU, those for training beside their gradients: what torch.compile and the libraries do not do as
well; and products by cuBLASLt with epilogues that torch does not reach.

Nothing here is imported unless the model decides for it; every kernel has a plain twin in the model's own code.
"""
