"""Question answering by start and end vectors."""
