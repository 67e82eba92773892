"""Tables whose rows are hits of rules over a topic."""
