"""MATCH_RECOGNIZE bound: patterns, definitions and measures."""
