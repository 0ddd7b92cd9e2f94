"""Studies of finished models (features, context, compute), and every study's result for people."""
