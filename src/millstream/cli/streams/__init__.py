"""Jobs of SQL and Python, dimension tables and models."""
