"""The options of functions and of a session, and how options are checked."""
