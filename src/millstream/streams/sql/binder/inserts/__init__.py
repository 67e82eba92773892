"""INSERT bound: columns of the sink, rows that change, and conflicts of keys."""
