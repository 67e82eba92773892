"""From syntax to plan nodes: names, types, joins and aggregates."""
