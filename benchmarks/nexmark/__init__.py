"""Nexmark on this engine: the queries, the topic that they read, and what they cost."""
