"""Directories of files as tables."""
