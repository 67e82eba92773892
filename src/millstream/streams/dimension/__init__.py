"""Dimension tables: rows that are looked up, compressed, mapped once per machine and found by indexes."""
