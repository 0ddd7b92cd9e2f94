"""The feed of pre-training: micro-batches by number, built on the fly, in worker processes."""
