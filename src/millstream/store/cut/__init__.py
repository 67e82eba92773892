"""Cutting a log at an offset, with all that is derived from it, over any crash."""
