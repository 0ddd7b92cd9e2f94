"""What `bertkit demo` does: tour.py shows the bundled models at work, scratch.py goes the whole way at toy scale."""
