"""One file per task: examples to batches, and the loss."""
