"""The syntax tree: statements, queries, tables and expressions, and the script that they stand in."""
