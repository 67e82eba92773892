"""Generated pipelines, run by Flink and by Millstream over the same rows: what differs is a fault, or has a reason."""
