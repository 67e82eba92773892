"""`millstream ingest`: files, syslog and HTTP become messages."""
