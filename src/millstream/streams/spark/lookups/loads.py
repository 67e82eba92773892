"""Loads lookup tables into dimension tables, from files, a database or a topic."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa

from millstream.streams.connectors.rocketmq import lookup as topics
from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.overlay import OverlayWriter, TableChanges, open_version, takes_changes
from millstream.streams.dimension.versions import Loaded, TableNote, TableVersion, WholeLoad
from millstream.streams.plan.expressions import Call, columns_of
from millstream.streams.plan.types import Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.opening import open_lookup
from millstream.streams.spark.lookups.row_conditions import filter_batch

__all__ = ["TableLoad"]

_NOT_IDENTITY = ("password", "lookup.")
"""Options that do not tell one table from another, or must not be written down, by their beginnings."""

_CHANGES_IDENTITY = tuple(f"{topics.CHANGES}{name}" for name in ("topic", "format", "nameserver"))
"""Those of them that tell one table from another all the same."""


@dataclass(frozen=True)
class TableLoad:
    """What is loaded of a table: the columns of `spec` where `filters` hold, of which `stored` can be read again.

    `key` is what the join finds rows by. Loads with the same `identity` share their versions. Where the table has a
    topic of changes, all columns are stored, the primary key among them.
    """

    spec: LookupSpec
    stored: tuple[str, ...]
    key: IndexKey | None = None
    filters: tuple[Call, ...] = ()
    verify: bool = False

    @property
    def changes(self) -> LookupSpec | None:
        """The topic whose messages change the table; None where it has none."""
        return topics.changes_of(self.spec)

    @property
    def primary(self) -> IndexKey:
        """What changes find the rows by that they replace."""
        return IndexKey.equal(*self.spec.primary_key)

    @property
    def identity(self) -> str:
        """A name of a directory: the table's, and a digest of what makes its content."""
        options = [
            (name, _without_query(value) if name == "url" else value)
            for name, value in self.spec.options
            if not name.lower().startswith(_NOT_IDENTITY) or name.lower() in _CHANGES_IDENTITY
        ]
        # What is not stored can only be indexed while it is loaded.
        hidden = () if self.key is None or set(self.key.columns) <= set(self.stored) else (str(self.key),)
        content = [
            options,
            [(one.name, str(one.type)) for one in self.spec.stored],
            self.spec.partitions,
            sorted(self.stored),
            hidden,
            sorted(map(str, self.filters)),
            self.verify,
        ]
        digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:12]
        plain = "".join(
            character if character.isalnum() and character.isascii() else "_" for character in self.spec.name
        )
        return f"{plain[:60]}-{digest}"

    def note(self, reload: str) -> TableNote:
        """What is said of the table where it is kept; without any secret."""
        database = f"{_without_query(self.spec.option('url'))} {self.spec.option('table-name')}"
        place = self.spec.option("path") or self.spec.option("topic") or database
        return TableNote(
            self.spec.name,
            self.spec.option("connector"),
            place,
            tuple(field.name for field in self.spec.fields),
            tuple(map(str, self.filters)),
            reload,
            () if self.key is None else (msgspec.json.encode(self.key.encode()).decode(),),
        )

    def stamp(self) -> str:
        """What shows that files are others or a topic went on; blank for a database, which does not tell."""
        return open_lookup(self.spec).stamp()

    def ends(self) -> dict[str, int]:
        """Where the queues of the topic of changes end now; none where there is no such topic."""
        return {} if self.changes is None else topics.topic_ends(self.changes)

    def fill(self, directory: Path, keys: Sequence[IndexKey]) -> Loaded:
        """Build the table in `directory`, found by all `keys`.

        Raises JobError where the rows cannot be read, DimensionError where they cannot be kept.
        """
        keys = keys if self.changes is None else [*keys, self.primary]
        return open_lookup(self.spec).load(partial(self._fill, directory, keys), directory)

    def fill_on(self, directory: Path, keys: Sequence[IndexKey], before: Path, head: TableVersion) -> Loaded:
        """The same of the version `head` in `before` and the changes since; the whole again where they are gone."""
        assert self.changes is not None
        read = None
        if head.ends and takes_changes(open_version(before), self.primary):
            spec = self._read_spec(self.changes)
            read = topics.read_on(spec, head.ends)
        if read is None:
            return self.fill(directory, keys)
        schema = arrow_schema(spark_schema(spec.schema))
        rows = pa.Table.from_batches([one.select(schema.names) for one in read.latest.batches()], schema)
        changed = pa.Table.from_batches(list(read.latest.changed_keys()) or [_no_keys(spec)])
        changes = TableChanges(_as_batch(changed), filter_batch(_as_batch(rows), self.filters))
        built = OverlayWriter(directory, before, self.primary, keys).write(changes)
        whole = WholeLoad(head.read_from_ms, head.read_until_ms)
        return Loaded(built.rows, built.size_bytes, head.stamp, read.ends, built.changed, whole)

    def _fill(self, directory: Path, keys: Sequence[IndexKey]) -> Loaded:
        # Before the first look at them: a file that changes meanwhile is another one at the next look, and changes
        # that the rows have already are made once more.
        stamp, ends = self.stamp(), self.ends()
        schema = arrow_schema(spark_schema(self.spec.schema))
        builder = TableBuilder(directory, schema, keys, stored=self.stored, verify=self.verify)
        try:
            for batch in self._batches(ends):
                chosen = filter_batch(batch, self.filters).select(schema.names)
                if chosen.num_rows:
                    builder.add(chosen)
            built = builder.finish()
        except BaseException:
            builder.abandon()
            raise
        return Loaded(built.rows, built.size_bytes, stamp, ends)

    def _read_spec(self, spec: LookupSpec) -> LookupSpec:
        """The spec with the columns that the filters read."""
        names = dict.fromkeys(name for call in self.filters for name in columns_of(call))
        known = {one.name: one for one in spec.stored}
        more = tuple(known[name] for name in names if spec.schema.find(name) is None)
        return replace(spec, fields=(*spec.fields, *more))

    def _batches(self, ends: dict[str, int]) -> Iterator[pa.RecordBatch]:
        """The rows, those of a topic up to `ends`."""
        return open_lookup(self.spec).batches(self._read_spec(self.spec), ends, self.filters)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows in one batch, of which there is one also where there are no rows."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _no_keys(spec: LookupSpec) -> pa.RecordBatch:
    fields = tuple(one for name in spec.primary_key for one in spec.stored if one.name == name)
    return pa.RecordBatch.from_pylist([], arrow_schema(spark_schema(Schema(fields))))


def _without_query(url: str) -> str:
    """A URL without what may hold a password."""
    plain = url.partition("?")[0]
    scheme, mark, rest = plain.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else plain
