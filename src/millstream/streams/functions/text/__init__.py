"""What functions do to texts: strings, patterns, JSON, logs and network addresses."""
