"""The host of our own stateful operators on Spark: packing by bucket, state on disk, the stage they run in."""
