"""Remoting over TCP: the server's and the client's side as asyncio protocols, and what listening can be refused for."""
