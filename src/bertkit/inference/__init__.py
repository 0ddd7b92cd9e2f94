"""A checkpoint becomes predictions and vectors."""
