"""Measurements of the whole product; see README.md beside this file."""
