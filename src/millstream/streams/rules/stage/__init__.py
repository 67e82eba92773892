"""The rule stage: all rules over a batch in one pass, by classes of events, keys and remembered values."""
