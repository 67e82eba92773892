"""OVER: each row with what the rows of its partition say, for rows that come in order, change, or are all there."""
