"""From text to syntax: lexer, cursor, and one parser for each family of statements and clauses."""
