"""The Spark data source of the connector datagen: rows that are made up column by column, the same at every reading."""
