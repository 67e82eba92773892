"""The events of the benchmark nexmark as a table."""
