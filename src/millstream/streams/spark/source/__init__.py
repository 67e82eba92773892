"""The Spark data source `rocketmq`: topics read as micro-batches or as one batch, and written."""
