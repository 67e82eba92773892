"""Configuration files of the roles: what may stand in them, reading them, and the reference made from the same rows."""
