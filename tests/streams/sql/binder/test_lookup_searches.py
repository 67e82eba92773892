"""What a lookup join finds rows by: equal columns, ranges, networks and prefixes, and what is refused."""

from __future__ import annotations

import pytest
from shop import plan_of, shop_error, shop_plan

from millstream.streams.plan.joins import LookupJoin
from millstream.streams.plan.nodes import Project, inputs_of

TABLES = """
CREATE TABLE events (ip STRING, n BIGINT, small INT, p AS PROCTIME())
  WITH ('connector' = 'rocketmq', 'topic' = 'e');
CREATE TABLE places (low BIGINT, high BIGINT, net STRING, start STRING, rank SMALLINT, label STRING, twice AS label || label)
  WITH ('connector' = 'filesystem', 'path' = '/p'{options});
CREATE TABLE stored (low BIGINT, high BIGINT, label STRING)
  WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/x.db', 'table-name' = 't');
"""


def joined(on: str, *, kind: str = "INNER", table: str = "places", options: str = "") -> str:
    """A script that joins events with a table."""
    select = f"SELECT e.n, d.label FROM events AS e {kind} JOIN {table} FOR SYSTEM_TIME AS OF e.p AS d ON {on}"
    return TABLES.replace("{options}", options) + select


def lookup(select: str) -> LookupJoin:
    """The join of such a script."""
    node = plan_of(select)
    while not isinstance(node, LookupJoin):
        (node,) = inputs_of(node)
    return node


@pytest.mark.parametrize(
    ("on", "found_by"),
    [
        ("e.n = d.low", "keys=[n = low]"),
        # Whole numbers of another width need no cast.
        ("e.n = d.rank", "keys=[n = rank]"),
        ("d.rank = e.small AND d.low = e.small", "keys=[small = rank, left_key = low]"),
        # Equal columns come before all others, which are looked at afterwards.
        ("e.n BETWEEN d.low AND d.high AND e.ip = d.net", "keys=[ip = net]"),
        # A function on the table's side is looked at afterwards, too.
        ("e.n = d.low AND UPPER(d.label) = e.ip", "keys=[n = low]"),
        ("e.n BETWEEN d.low AND d.high", "search=[RANGE(n, low, high)]"),
        ("d.low <= e.n AND d.high > e.n", "search=[RANGE(n, low, high, end excluded)]"),
        ("e.n >= d.low AND e.n < d.high", "search=[RANGE(n, low, high, end excluded)]"),
        ("CIDR_MATCH(e.ip, d.net)", "search=[NETWORK(ip, net)]"),
        ("STARTSWITH(e.ip, d.start)", "search=[PREFIX(ip, start)]"),
    ],
)
def test_a_lookup_finds_rows_by_what_its_condition_compares(on: str, found_by: str) -> None:
    assert shop_plan(joined(on))[1] == f"  LookupJoin INNER places (filesystem) {found_by}"
    is_checked_again = any(part in on for part in ("UPPER", "BETWEEN d.low AND d.high AND"))
    assert (lookup(joined(on)).condition is not None) is is_checked_again


def test_a_topic_of_upserts_is_looked_up_as_the_rows_that_its_keys_have() -> None:
    table = """CREATE TABLE d (id BIGINT, label STRING, PRIMARY KEY (id) NOT ENFORCED)
      WITH ('connector' = 'upsert-rocketmq', 'topic' = 'd');"""
    select = "SELECT e.n, d.label FROM events AS e JOIN d FOR SYSTEM_TIME AS OF e.p AS d ON e.n = d.id"
    node = lookup(TABLES.replace("{options}", "") + table + select)
    assert (node.table.name, node.keys) == ("d", (("n", "id"),))


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id BIGINT", "", '"d" has no primary key, by which the rows of'),
        ("id BIGINT, PRIMARY KEY (id) NOT ENFORCED", ", 'lookup.store' = 'plain'", "has a topic of changes"),
    ],
)
def test_changes_that_cannot_be_merged_are_refused(columns: str, options: str, words: str) -> None:
    table = f"""CREATE TABLE d ({columns}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/x.db', 'table-name' = 't',
      'lookup.changes.topic' = 'c'{options});"""
    select = "SELECT d.id FROM events AS e JOIN d FOR SYSTEM_TIME AS OF e.p AS d ON e.n = d.id"
    assert words in str(shop_error(TABLES.replace("{options}", "") + table + select))


def test_what_a_search_does_not_answer_stays_a_condition() -> None:
    node = lookup(joined("e.n > d.low AND e.n <= d.high AND d.label <> e.ip", kind="LEFT"))
    assert str(node.search) == "RANGE(n, low, high)"
    assert str(node.condition) == "AND(>(n, low), <>(label, ip))"


def test_a_value_that_is_made_of_columns_is_searched() -> None:
    node = lookup(joined("e.small + 1 BETWEEN d.low AND d.high"))
    assert node.search is not None
    assert node.search.columns == ("low", "high")
    assert isinstance(node.input, Project)
    assert str(dict(node.input.columns)[node.search.probe]) == "CAST(+(small, 1) AS BIGINT)"


def test_a_full_scan_is_only_done_where_the_table_allows_it() -> None:
    allowed = lookup(joined("e.ip LIKE d.label", options=", 'lookup.full-scan' = 'true'"))
    assert str(allowed.search) == "ALL"
    assert str(allowed.condition) == "LIKE(ip, label)"
    refused = shop_error(joined("e.ip LIKE d.label"))
    assert refused.name == "SQL_UNSUPPORTED"
    assert "lookup.full-scan" in str(refused)
    assert refused.position is not None


@pytest.mark.parametrize("on", ["UPPER(d.label) = e.ip", "d.twice = e.ip", "d.low = 5", "e.n < d.low", "TRUE"])
def test_a_lookup_without_any_usable_condition_is_refused(on: str) -> None:
    assert "cannot be looked up" in shop_error(joined(on)).message


def test_a_table_that_is_not_loaded_is_not_searched() -> None:
    refused = shop_error(joined("e.n BETWEEN d.low AND d.high", table="stored"))
    assert "'lookup.cache' = 'FULL'" in str(refused)
    plain = shop_error(joined("e.n BETWEEN d.low AND d.high", options=", 'lookup.store' = 'plain'"))
    assert "lookup.store" in plain.message
