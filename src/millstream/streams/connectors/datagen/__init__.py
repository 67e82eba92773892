"""Tables of rows that are made up by column."""
