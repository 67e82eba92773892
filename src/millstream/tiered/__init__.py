"""Tiered storage: cold parts of the log as immutable objects of an object store."""
