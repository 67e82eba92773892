"""Copies of cold topics as tables: what was copied, and the Iceberg tables over the Parquet files."""
