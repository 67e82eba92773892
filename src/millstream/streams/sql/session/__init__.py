"""One SQL session: statements in, plans and listings out."""
