"""Damage to a log: where it is, which of it is known, and other stores' bytes written over it."""
