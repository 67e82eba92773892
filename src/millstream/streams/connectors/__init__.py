"""All connectors: what a table in SQL can stand for.

Each has a folder: `options.py` is pure and ends in its row, a `Connector`; `source.py`, `sink.py` and `lookup.py` are
its code, which the row names as 'module:callable' and which is imported when a job starts. `registry.CONNECTORS` has
our rows and those of other packages, by the entry point group `millstream.connectors`. What a connector can do is a
field of its row: parser, binder, optimizer and jobs ask the row, never a name.

    SQL -> registry -> row -> code_of(row.source)(ConnectedTable) -> SourceConnector -+
                           |                                                        ConnectedSpec -+
                           +-> code_of(row.job_source)(Table, ReadDefaults) -> Source -> SourceSpec -+-> TableDataSource

A source reads by offsets: `first`, `latest`, `partitions`, `read`, and more by the optional methods of `protocols`
(where a micro-batch ends, what the driver plans, rows that do not fit). One data source of Spark, `millstream`, runs
all of them; connectors whose offsets are more than numbers (topics, hits of rules) bring readers of their own, by
`job_source`. A sink writes tasks and commits micro-batches: `protocols.SinkConnector`, or by `job_sink` a sink of
`spark.sinks` that knows the whole INSERT. A lookup is a `lookup_connector.LookupConnector`. `kit` has the contract of
sources and sinks as checks.

Imports: rows and options only `plan`, `rules` and what is pure here; code what it needs of `spark` and `databases`;
nothing above (`sql`, `optimizer`, `jobs`) is imported by rows.
"""
