"""The host of our own stateful operators on Spark: packing by task, state in files, the stage they run in."""
