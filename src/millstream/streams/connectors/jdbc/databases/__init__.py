"""Databases as tables are read from and written to them, each with its own names and values."""
