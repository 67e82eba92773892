"""Iceberg tables over Parquet files of cold topics: a table for each topic of a cluster, in a catalogue of SQL.

Brokers of one cluster share a table. Each brings it to hold just the files that its own state names, whatever it holds
now, in one commit that fails where another came between. So a commit whose answer was lost is no second row, and a
table that was lost is made again from the files. Blocks; for a process of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Final

import msgspec
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from millstream.model.errors import MillstreamError
from millstream.tiered.columns.column_map import KEPT_METADATA, data_prefix, table_prefix
from millstream.tiered.columns.column_work import TableFile, TableFiles, TableRequest, TableState
from millstream.tiered.columns.object_io import STORE_PROPERTY, StorePlace, open_stores
from millstream.tiered.objects import MAX_DELETED_KEYS

__all__ = ["CATALOG", "IcebergTables"]

CATALOG: Final = "millstream"
"""The name of the catalogue in its database, under which readers open it as well."""

LISTED_FILES: Final = 500
"""Files of a table that one answer names: with keys of any length it stays below `MAX_ANSWER_BYTES`."""

_OFFSETS: Final = "millstream.offsets."
"""Before a broker's name: the property of a snapshot with the offset behind the last message of each of its queues."""

_PROPERTIES: Final = {
    "commit.manifest-merge.enabled": "true",
    # A commit that was overtaken is planned anew: what it would add may be there by now.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(KEPT_METADATA),
}


class IcebergTables:
    """The tables of one catalogue, an address of SQLAlchemy as `sqlite:////directory/tables.db`.

    Raises TABLE_REFUSED, COLUMN_COPY_FAILED, and what the object store raises.
    """

    def __init__(self, catalog: str, place: StorePlace) -> None:
        self._place = place
        self._token = secrets.token_hex(8)
        open_stores[self._token] = place
        implementation = {"py-io-impl": "millstream.tiered.columns.object_io.ObjectFileIO", STORE_PROPERTY: self._token}
        with _meaning(catalog):
            self._catalog = SqlCatalog(CATALOG, uri=catalog, **implementation)

    def close(self) -> None:
        """Let go of the catalogue; not of the store."""
        self._catalog.close()
        open_stores.pop(self._token, None)

    def keep(self, request: TableRequest, schema: pa.Schema) -> TableState:
        """Make the table hold those files of the broker, and no others; columns that it lacks are added."""
        with _meaning(request.topic):
            table = self._open(request, schema)
            wanted = {self._place.location(key) for key in request.keys}
            present = self._files_of(table, request)
            added = sorted(wanted - present.keys())
            removed = [one for location, one in present.items() if location not in wanted]
            properties = _marks(table, request)
            with table.transaction() as change:
                with change.update_schema() as columns:
                    columns.union_by_name(schema)
                if removed:
                    with change.update_snapshot(snapshot_properties=properties).overwrite() as less:
                        for one in removed:
                            less.delete_data_file(one)
                if added:
                    change.add_files(added, snapshot_properties=properties, check_duplicate_files=False)
            return TableState(len(added), len(removed))

    def drop(self, cluster: str, topic: str) -> None:
        """Forget the table, whose files stay; its metadata goes. No error where there is none."""
        with _meaning(topic):
            try:
                self._catalog.drop_table((cluster, topic))
            except NoSuchTableError:
                return
            self._delete_metadata(cluster, topic, kept=frozenset(), before_ms=None)

    def tidy(self, cluster: str, topic: str, before_ms: int) -> int:
        """Forget snapshots that were followed by others before that time, and delete what they alone had; how many
        objects."""
        with _meaning(topic):
            try:
                table = self._catalog.load_table((cluster, topic))
            except NoSuchTableError:
                return 0
            snapshots = sorted(table.snapshots(), key=lambda one: one.sequence_number)
            old = [one.snapshot_id for one, following in pairwise(snapshots) if following.timestamp_ms < before_ms]
            if old:
                table.maintenance.expire_snapshots().by_ids(old).commit()
                table = self._catalog.load_table((cluster, topic))
            kept = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
            for snapshot in table.snapshots():
                kept.add(snapshot.manifest_list)
                kept.update(one.manifest_path for one in snapshot.manifests(table.io))
            return self._delete_metadata(cluster, topic, kept=kept, before_ms=before_ms)

    def list_files(self, cluster: str, topic: str, after: str) -> TableFiles:
        """See `ColumnWork.list_files`."""
        with _meaning(topic):
            try:
                table = self._catalog.load_table((cluster, topic))
            except NoSuchTableError:
                return TableFiles(())
            # Snapshots share most of their manifests, each of which is read once.
            manifests: dict[str, tuple[ManifestFile, bool]] = {}
            for snapshot in table.snapshots():
                is_current = snapshot.snapshot_id == table.metadata.current_snapshot_id
                for one in snapshot.manifests(table.io):
                    manifests[one.manifest_path] = one, is_current or manifests.get(one.manifest_path, (one, False))[1]
            found: dict[str, TableFile] = {}
            for one, is_current in manifests.values():
                for entry in one.fetch_manifest_entry(table.io):
                    key = self._place.find_key(entry.data_file.file_path)
                    if key is not None and key > after:
                        named = is_current or (key in found and found[key].is_current)
                        found[key] = TableFile(key, entry.data_file.file_size_in_bytes, named)
        keys = sorted(found)[:LISTED_FILES]
        return TableFiles([found[key] for key in keys], keys[-1] if len(keys) < len(found) else "")

    def _open(self, request: TableRequest, schema: pa.Schema) -> Table:
        name = request.cluster, request.topic
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            pass
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(request.cluster)
        location = self._place.location(table_prefix(request.cluster, request.topic).rstrip("/"))
        try:
            return self._catalog.create_table(name, schema, location, properties=_PROPERTIES)
        except TableAlreadyExistsError:
            return self._catalog.load_table(name)

    def _files_of(self, table: Table, request: TableRequest) -> dict[str, DataFile]:
        """The files of this broker that the table has, by address. Raises TABLE_REFUSED for a table of others."""
        prefix = self._place.location(data_prefix(request.cluster, request.topic, request.broker))
        scan = table.scan(row_filter=EqualTo("_broker", request.broker))
        return {one.file.file_path: one.file for one in scan.plan_files() if one.file.file_path.startswith(prefix)}

    def _delete_metadata(self, cluster: str, topic: str, kept: object, before_ms: int | None) -> int:
        assert isinstance(kept, set | frozenset)
        prefix = f"{table_prefix(cluster, topic)}metadata/"
        keys = [
            one.key
            for one in self._place.objects.list(prefix)
            if self._place.location(one.key) not in kept and (before_ms is None or one.modified_ms < before_ms)
        ]
        for start in range(0, len(keys), MAX_DELETED_KEYS):
            self._place.objects.delete(keys[start : start + MAX_DELETED_KEYS])
        return len(keys)


def _marks(table: Table, request: TableRequest) -> dict[str, str]:
    """The properties of the next snapshot: how far the table has the queues of each broker."""
    current = table.current_snapshot()
    present: Mapping[str, str] = {}
    if current is not None:
        summary = current.summary
        present = {} if summary is None else summary.additional_properties
        if not any(name.startswith(_OFFSETS) for name in present):
            raise MillstreamError(
                "TABLE_REFUSED",
                f"The table of {request.topic} was changed by another than Millstream: snapshot {current.snapshot_id}.",
            )
    others = {name: value for name, value in present.items() if name.startswith(_OFFSETS)}
    own = msgspec.json.encode(
        {str(queue_id): request.next_offsets[queue_id] for queue_id in sorted(request.next_offsets)}
    )
    return {**others, f"{_OFFSETS}{request.broker}": own.decode()}


@contextmanager
def _meaning(what: str) -> Iterator[None]:
    """Errors of the catalogue and of pyiceberg as ours."""
    try:
        yield
    except CommitFailedException as error:
        words = f"Another came between while the table of {what} was changed: {error}."
        raise MillstreamError("COLUMN_COPY_FAILED", words) from None
    except SQLAlchemyError as error:
        raise MillstreamError("COLUMN_COPY_FAILED", f"The catalogue of tables fails: {error}.") from None
    except (ValidationError, ValueError, TypeError, NotImplementedError, FileNotFoundError) as error:
        raise MillstreamError("TABLE_REFUSED", f"The table of {what} cannot be read or changed: {error}.") from None
