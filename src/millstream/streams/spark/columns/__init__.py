"""Columns and rows of Spark that all of its packages share: types, casts, calendar units, hidden columns."""
