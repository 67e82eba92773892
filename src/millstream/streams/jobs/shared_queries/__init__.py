"""Queries that several jobs share: which jobs may, how one leaves, and micro-batches that were cut short."""
