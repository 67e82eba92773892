"""Topics, groups and messages: create, show, send, read, trace and redrive."""
