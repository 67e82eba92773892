"""Learning in the pipeline: models that are applied to rows, and scores that learn from the rows themselves."""
