"""GROUP BY with a window: slices of time, sessions, and windows by column."""
