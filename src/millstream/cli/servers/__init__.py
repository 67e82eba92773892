"""Servers: start them, look at them, and check what goes wrong."""
