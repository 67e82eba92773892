"""Savepoints: what is written of a job at one moment, and how a job begins from it."""
