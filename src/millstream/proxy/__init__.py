"""The proxy: one protocol-neutral processor over a backend, and one adapter per protocol."""
