"""What a session knows by name: tables, views, functions, partitions and databases."""
