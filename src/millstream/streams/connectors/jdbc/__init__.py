"""Tables of a database as tables."""
