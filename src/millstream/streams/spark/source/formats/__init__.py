"""Bodies of messages as rows: JSON, Avro, Protobuf, CSV, raw bytes and changelogs."""
