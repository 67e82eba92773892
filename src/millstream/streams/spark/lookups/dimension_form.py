"""Chooses lookup joins that use a dimension table, and what is loaded for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.rocketmq.lookup import CHANGES, changes_of
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Call, columns_of
from millstream.streams.plan.joins import LookupJoin, SearchKind
from millstream.streams.plan.tables import ComputedColumn
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.opening import open_lookup

__all__ = ["dimension_load", "given_columns", "is_dimension", "probe_places"]

_KINDS = {
    SearchKind.RANGE: IndexKind.RANGE,
    SearchKind.NETWORK: IndexKind.NETWORK,
    SearchKind.PREFIX: IndexKind.PREFIX,
}


def is_dimension(node: LookupJoin, spec: LookupSpec) -> bool:
    """Whether the table is loaded once per machine. Raises JobError JOB_FAILED where that and a hint contradict."""
    store = spec.option("lookup.store").lower()
    is_topic = connector_of(spec.option("connector")).reads_upserts
    asks_again = dict(node.hints).get("retry-predicate", "").lower() == "lookup_miss"
    if asks_again and (store == "dimension" or node.search is not None or is_topic):
        words = f"{node.table.name} is loaded as a whole: what is not in it is not asked for again."
        raise JobError("JOB_FAILED", words, remedy="Leave out the LOOKUP hint or 'lookup.store'.")
    if is_topic:
        if store == "plain":
            words = f"{node.table.name} is a topic, which is only looked up as a dimension table."
            raise JobError("JOB_FAILED", words, remedy="Leave out 'lookup.store'.")
        return True
    if spec.option(f"{CHANGES}topic"):
        if store == "plain" or asks_again:
            words = f"{node.table.name} has a topic of changes, which only a dimension table takes."
            raise JobError("JOB_FAILED", words, remedy="Leave out the LOOKUP hint or 'lookup.store'.")
        return True
    if store:
        return store == "dimension"
    if asks_again:
        return False
    if node.search is not None:
        return True
    return open_lookup(spec).loads_whole()


def given_columns(node: LookupJoin, spec: LookupSpec) -> tuple[str, ...]:
    """The stored columns of the table that a join gives on; one where it gives none."""
    computed = {column.name: column for column in node.table.columns if isinstance(column, ComputedColumn)}
    read = dict.fromkeys(
        name for _, of in node.columns for name in (columns_of(computed[of].expression) if of in computed else (of,))
    )
    return tuple(name for name in spec.schema.names if name in read) or spec.schema.names[:1]


def dimension_load(node: LookupJoin, spec: LookupSpec, filters: tuple[Call, ...]) -> TableLoad:
    """What is loaded for a join: the columns that it gives on, and an index of those that it compares.

    Of a table with a topic of changes all that is read is stored, and the primary key: an overlay is made of rows.
    """
    verify = spec.option("lookup.verify", "false").lower() == "true"
    if changes_of(spec) is None:
        return TableLoad(spec, given_columns(node, spec), _key(node), filters, verify)
    if not spec.primary_key:
        words = f"The changes of {spec.name} replace rows by its primary key, and it has none."
        raise JobError("JOB_FAILED", words, remedy="Declare PRIMARY KEY (...) NOT ENFORCED.")
    read = {field.name for field in spec.fields} | set(spec.primary_key)
    whole = replace(spec, fields=tuple(field for field in spec.stored if field.name in read))
    return TableLoad(whole, whole.schema.names, _key(node), filters, verify)


def _key(node: LookupJoin) -> IndexKey | None:
    search = node.search
    if search is None:
        return IndexKey.equal(*(key for _, key in node.keys))
    if search.kind is SearchKind.ALL:
        return None
    return IndexKey(_KINDS[search.kind], search.columns, search.end_included)


def probe_places(node: LookupJoin, key: IndexKey | None, names: Sequence[str]) -> tuple[int, ...]:
    """Where the values stand that ask, in the order of the key's columns; `names` are those of all columns."""
    if key is None:
        return ()
    if node.search is not None:
        return (names.index(node.search.probe),)
    of_key = {of: name for name, of in node.keys}
    return tuple(names.index(of_key[column]) for column in key.columns)
