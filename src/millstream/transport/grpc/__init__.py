"""A gRPC port over asyncio: calls of any service on HTTP/2 connections. Knows nothing of messages."""
