"""What a run will take, from a few measured steps: hours, memory, disk, tokens."""
