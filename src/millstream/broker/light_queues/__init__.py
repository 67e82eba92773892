"""Light queues of a broker: which records go to them, and how they come and go."""
