"""Fine-tuning runs: from a checkpoint, a task and its files to a trained, scored and described model."""
