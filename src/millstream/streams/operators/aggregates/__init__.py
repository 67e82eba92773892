"""Aggregate functions as small machines: values in, values taken back, two states made one, a result at any time."""
