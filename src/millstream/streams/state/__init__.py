"""What jobs keep in files: the mechanisms that rules, models, dimension tables, sinks and operators share."""
