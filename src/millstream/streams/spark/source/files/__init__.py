"""The Spark data source of the connector filesystem: files of a directory, each read once."""
