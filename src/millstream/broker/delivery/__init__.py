"""Storing messages, and those that are not delivered at once: delayed ones, transactions, retries, redriven ones."""
