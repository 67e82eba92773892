"""Stateful operators of ours: one instance for each group of keys, free of Spark, sockets and clocks."""
