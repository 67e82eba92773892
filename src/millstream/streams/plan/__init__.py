"""The logical plan: types, expressions and relational nodes, frozen and free of any engine and any parser."""
