"""The same raw requests to a reference broker and to ours, and what differs in the answers."""
