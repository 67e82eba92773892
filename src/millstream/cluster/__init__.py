"""The nameserver: which broker holds which topic, learned from the brokers' registrations."""
