"""A checkpoint behind HTTP: routes, batching, worker processes, limits, metrics. Needs the extra `serve`."""
