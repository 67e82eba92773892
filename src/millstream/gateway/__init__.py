"""Flink's SQL Gateway: sessions, statements and results over its REST API, on the stream engine."""
