"""The job server: keeps jobs in a topic and runs them as processes, one server of several at a time."""
