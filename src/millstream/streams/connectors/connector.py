"""What a connector declares of itself: its options, what its tables can do, and where its code is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.streams.plan.types import DataType
from millstream.streams.sql.options import Option

__all__ = ["Connector"]


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector. `metadata` maps the keys of METADATA columns to their types.

    `looks_up` says whether a lookup join can ask it, `needs_key` whether its tables need a primary key, `overwrites`
    whether INSERT OVERWRITE is possible. `columns` are those that its tables may have; blank: any.
    `source` and `sink` name the code of connectors behind the protocols, as 'module:callable': called with a
    `ConnectedTable`, they give a `SourceConnector` and a `SinkConnector`. With `bounded` a table ends with what is
    there when a job starts; with `upserts` one with a primary key takes rows that change.
    """

    name: str
    options: tuple[Option, ...]
    metadata: Mapping[str, DataType] = field(default_factory=dict)
    reads: bool = False
    writes: bool = False
    looks_up: bool = False
    needs_key: bool = False
    overwrites: bool = False
    columns: Mapping[str, DataType] = field(default_factory=dict)
    source: str = ""
    sink: str = ""
    bounded: bool = False
    upserts: bool = False

    def find(self, key: str) -> Option | None:
        """The option that `key` names, also where the option's name has a # for a column."""
        return next((known for known in self.options if key == known.name or known.column_of(key) is not None), None)

    def defaults(self) -> dict[str, str]:
        """The values of options that nobody set."""
        return {option.name: option.default for option in self.options if option.default is not None}
