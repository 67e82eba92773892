"""The table that a connector serves, as one value that travels to workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.streams.plan.types import DataType, Field, Schema

__all__ = ["ConnectedColumn", "ConnectedTable"]


@dataclass(frozen=True, slots=True)
class ConnectedColumn:
    """A column in the data, or metadata under the connector's key for it."""

    name: str
    type: DataType
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectedTable:
    """A table with the columns that are read, or with all that are written, in their order.

    `options` are those of WITH, checked, with the connector's defaults and with secrets filled in: they are not shown
    by `repr`. `nameserver` is the job's, for connectors that set rows aside in topics.
    """

    name: str
    columns: tuple[ConnectedColumn, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    primary_key: tuple[str, ...] = ()
    nameserver: str = ""

    @property
    def schema(self) -> Schema:
        """The columns with their types."""
        return Schema(tuple(Field(column.name, column.type) for column in self.columns))

    def number(self, option: str) -> int:
        """The value of an option that is a whole number."""
        return int(self.options[option])

    def is_set(self, option: str) -> bool:
        """Whether a flag is true."""
        return self.options.get(option, "false").lower() == "true"
