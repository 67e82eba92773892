"""The domain's words, pure: messages, topics, groups, filters, receipt handles, operations, errors and time."""
