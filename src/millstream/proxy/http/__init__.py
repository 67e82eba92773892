"""The HTTP port of a proxy: CloudEvents and plain messages into topics, and out of them for groups and webhooks."""
