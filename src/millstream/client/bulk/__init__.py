"""The bulk lane's client: many messages as one Arrow batch, sent and fetched whole; needs `millstream[bulk]`."""
