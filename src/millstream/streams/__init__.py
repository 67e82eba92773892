"""The stream engine: Flink-compatible SQL to our own plan, and the plan to Spark."""
