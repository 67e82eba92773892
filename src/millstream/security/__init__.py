"""Who asks and what they may do: users, policies, signatures, the guard at every port, the audit, TLS."""
