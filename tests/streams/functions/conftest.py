"""Puts what the tests below share on the path."""
