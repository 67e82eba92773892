"""Joins of two inputs: regular, by an interval, of windows, with versions, and NOT IN."""
