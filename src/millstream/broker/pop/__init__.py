"""Pop: deliveries for a time, in and out of order, of lite topics as well, and dead letters."""
