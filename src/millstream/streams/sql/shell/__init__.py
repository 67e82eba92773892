"""What shells show of SQL: completion, EXPLAIN and plans as JSON."""
