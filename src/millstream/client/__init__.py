"""The Python client over remoting: producer, puller and admin calls, for asyncio and for synchronous callers."""
