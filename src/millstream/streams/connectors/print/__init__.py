"""Tables that only take rows: shown, or thrown away."""
