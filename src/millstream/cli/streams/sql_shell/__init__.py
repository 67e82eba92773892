"""The SQL shell: what is read from the user, what is shown of results, and the jobs that run meanwhile."""
