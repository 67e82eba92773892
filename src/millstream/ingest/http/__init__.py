"""Events that are posted over HTTP: JSON, lines and CloudEvents."""
