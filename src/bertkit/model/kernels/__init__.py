"""Triton kernels for one GPU, each beside its gradient: what torch.compile and the libraries do not do as well.

Nothing here is imported unless model/fast.py decides for it; every kernel has a plain twin in the model's own code.
"""
