"""Columns behind whole names of tables: database and catalog may stand in front of the table's."""

from __future__ import annotations

import pytest
from compiling import planned, refused

TABLES = """
CREATE TABLE t (id INT, place ROW<city STRING, t INT>) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE DATABASE other;
CREATE TABLE other.u (id INT, name STRING) WITH ('connector' = 'rocketmq', 'topic' = 'u');
CREATE TABLE `a.b` (id INT) WITH ('connector' = 'rocketmq', 'topic' = 'ab');
"""


@pytest.mark.parametrize("name", ["t.id", "default_database.t.id", "default_catalog.default_database.t.id"])
def test_a_column_may_stand_behind_the_whole_name_of_its_table(name: str) -> None:
    assert planned(TABLES, f"SELECT {name} FROM t WHERE {name} > 1") == planned(TABLES, "SELECT id FROM t WHERE id > 1")


def test_fields_of_rows_and_stars_stand_behind_whole_names_as_well() -> None:
    assert planned(TABLES, "SELECT default_database.t.place.t FROM t")[0] == "Project [FIELD(place, 't') AS t]"
    assert planned(TABLES, "SELECT other.u.* FROM other.u")[0] == "Project [id, name]"
    assert planned(TABLES, "SELECT default_catalog.other.u.*, t.id AS of FROM t, other.u") == planned(
        TABLES, "SELECT u.*, t.id AS of FROM t, other.u"
    )


def test_joins_groupings_and_sub_queries_know_whole_names() -> None:
    written = """SELECT other.u.name, COUNT(*) FROM t JOIN other.u ON default_database.t.id = other.u.id
    WHERE EXISTS (SELECT 1 FROM other.u AS v WHERE v.id = default_database.t.id)
    GROUP BY other.u.name HAVING MAX(other.u.id) > 1"""
    short = written.replace("other.u.", "u.").replace("default_database.", "")
    assert planned(TABLES, written) == planned(TABLES, short)


def test_an_alias_takes_the_place_of_the_whole_name() -> None:
    error = refused("SELECT other.u.id FROM other.u AS v", after=TABLES)
    assert error.name == "SQL_UNKNOWN_COLUMN"
    assert planned(TABLES, "SELECT other.u.id FROM other.u AS u") == planned(TABLES, "SELECT id FROM other.u")


def test_a_name_that_is_not_there_is_told_behind_the_whole_name() -> None:
    error = refused("SELECT other.u.nam FROM other.u", after=TABLES)
    assert '"other.u" has no column "nam". Did you mean "name"?' in str(error)


def test_a_point_within_back_ticks_parts_no_name() -> None:
    assert planned(TABLES, "SELECT `a.b`.id FROM `a.b`") == ["Project [id]", "  Scan `a.b` (rocketmq)"]
    named = planned(TABLES, "WITH `x.y` AS (SELECT id FROM t) SELECT `x.y`.id FROM `x.y`")
    assert named == ["Project [id]", "  Project [id]", "    Scan t (rocketmq)"]
