"""Which light queues want a message: pure matchers, fast for many bindings."""
