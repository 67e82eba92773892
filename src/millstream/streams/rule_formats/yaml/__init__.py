"""Our own YAML form of rules."""
