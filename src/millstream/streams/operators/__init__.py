"""Stateful operators of ours: one instance for each bucket of keys, free of Spark, sockets and clocks."""
