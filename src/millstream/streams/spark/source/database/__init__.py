"""The Spark data source of the connector jdbc: a table of a database, read once."""
