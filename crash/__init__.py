"""Programmes that crash the product on purpose and check what is left; see README.md beside this file."""
