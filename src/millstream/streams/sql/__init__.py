"""The SQL front end: Flink-compatible scripts to the engine-free plan, with every error at its place in the script."""
