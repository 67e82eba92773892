"""Sub-queries as joins: EXISTS, IN, scalar and lateral ones, correlated or not."""
