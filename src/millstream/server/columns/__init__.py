"""Copies of cold topics as tables: what topics declare, how messages become rows, and the process that does it."""
