"""The body of a bulk message: an Arrow IPC stream of one batch, read and checked without an Arrow library."""
