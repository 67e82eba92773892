"""Hits on their way between the job that judges and the one that counts: many rows in one record of a topic."""
