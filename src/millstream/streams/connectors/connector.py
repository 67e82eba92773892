"""The entry of a connector: its declared options and abilities, and where its code is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.streams.connectors.options import Option
from millstream.streams.plan.types import DataType

__all__ = ["Connector", "never_ends"]


def never_ends(options: Mapping[str, str]) -> bool:
    """False: a table goes on, whatever its options say."""
    return False


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector: a value that is pure, so that SQL is bound without any of the connector's code.

    Code is named as 'module:callable' and imported when a job starts. Plain connectors name a `source` and a `sink`;
    `job_source` and `job_sink` are for those that need more of a job than `protocols` says. A connector has one of
    each pair at most.
    """

    name: str
    """What 'connector' = '...' calls it."""
    options: tuple[Option, ...]
    """The keys of WITH."""
    metadata: Mapping[str, DataType] = field(default_factory=dict)
    """Types of METADATA columns by their keys."""
    reads: bool = False
    """Whether its tables can be read."""
    writes: bool = False
    """Whether its tables can be written."""
    looks_up: bool = False
    """Whether a lookup join can ask its tables."""
    needs_key: bool = False
    """Whether its tables need a primary key."""
    overwrites: bool = False
    """Whether INSERT OVERWRITE is possible."""
    columns: Mapping[str, DataType] = field(default_factory=dict)
    """The columns that its tables may have; empty: any."""
    source: str = ""
    """Called with a `ConnectedTable` it gives a `protocols.SourceConnector`."""
    sink: str = ""
    """Called with a `ConnectedTable` it gives a `protocols.SinkConnector`."""
    bounded: bool = False
    """Whether a table ends with what is there when a job starts."""
    upserts: bool = False
    """Whether a table that has a primary key takes rows that change, and holds the last row of each key."""
    job_source: str = ""
    """Called with the plan's `Table` and the job's `ReadDefaults` it gives a `Source` (see `spark.source.reading`)."""
    job_sink: str = ""
    """Called with a `SinkRequest` it gives a `spark.sinks.sink.Sink`."""
    lookup: str = ""
    """Called with a `spark.lookups.lookup_table.LookupSpec` it gives a `lookup_connector.LookupConnector`."""
    ends: Callable[[Mapping[str, str]], bool] = never_ends
    """Whether a table with these options ends by itself, beside all tables of `bounded` connectors."""
    formats: tuple[str, ...] = ()
    """What the option 'format' may say, where rows are written in one."""
    is_topic: bool = False
    """Whether rows are messages of a topic, which a test can feed."""
    reads_upserts: bool = False
    """Whether a table is read as the last row of each primary key, which later rows replace."""
    judges: bool = False
    """Whether its source judges predicates where it makes rows."""
    gives_hits: bool = False
    """Whether its rows are hits of rules."""
    dead_letters: bool = False
    """Whether rows that a job cannot use go to the dead-letter topic of their table."""
    merges: bool = False
    """Whether its sink takes the rows of merged INSERTs, which come in any order."""
    commits_partitions: bool = False
    """Whether its sink tells by event time which partitions are whole."""
    shows_changes: bool = False
    """Whether its sink takes every change of a row, with or without a primary key, and values of any type."""
    shows_rows: bool = False
    """Whether its rows are given to who runs the job."""
    delimiter_means_csv: bool = False
    """Whether a delimiter of fields alone says that the format is csv, as in tables of rsqldb."""
    writable_metadata: tuple[str, ...] = ()
    """The METADATA columns (by their keys) that an INSERT may fill; the others can only be read."""

    def find(self, key: str) -> Option | None:
        """The option that `key` names, also where the option's name has a # for a column."""
        return next((known for known in self.options if key == known.name or known.column_of(key) is not None), None)

    def defaults(self) -> dict[str, str]:
        """The values of options that nobody set."""
        return {option.name: option.default for option in self.options if option.default is not None}

    def ends_with(self, options: Mapping[str, str]) -> bool:
        """Whether a table with these options ends by itself, so that a job over such tables alone ends too."""
        return self.bounded or self.ends(options)
