"""Functions and aggregates that users write in Python: declared, found, called, and what becomes of failed calls."""
