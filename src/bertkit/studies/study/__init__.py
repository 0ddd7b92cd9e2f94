"""The paper's findings, run again at a small scale: `bertkit study`."""
