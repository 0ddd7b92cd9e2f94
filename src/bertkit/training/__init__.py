"""The one training loop: optimizers, schedules, checkpoints that survive being killed, the run's journal."""
