"""MATCH_RECOGNIZE: patterns as states, partial matches that share what they have in common, and the operator."""
