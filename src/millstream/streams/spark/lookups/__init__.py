"""Tables that lookup joins ask: files and databases, each held by the worker that asks."""
