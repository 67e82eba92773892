"""Pages that a real browser runs, the server that it has them from, and a relay that cuts its connections."""
