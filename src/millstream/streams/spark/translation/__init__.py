"""From plan nodes to Spark's data frames and columns."""
