"""Statements that change or show the session."""

from __future__ import annotations

import json

import pytest
from compiling import EVENTS, compiled, job, refused

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import JobCommand, SqlSession, TextResult


def text(script: str) -> TextResult:
    result = compiled(script)[-1]
    assert isinstance(result, TextResult)
    return result


def test_describe_shows_columns_types_and_event_time() -> None:
    rows = text("DESCRIBE events").rows
    assert ("id", "BIGINT", "TRUE", "", "", "", "") in rows
    computed = "AS TO_TIMESTAMP(text_ts)"
    assert ("ts", "TIMESTAMP(3) *ROWTIME*", "TRUE", "", computed, "ts - INTERVAL '5' SECOND", "") in rows
    assert ("queue", "INT", "TRUE", "", "METADATA FROM 'queue-id' VIRTUAL", "", "") in rows


def test_show_lists_tables_views_and_functions() -> None:
    assert text("CREATE VIEW v AS SELECT id FROM events; SHOW TABLES").rows == (("events",), ("v",))
    assert text("CREATE VIEW v AS SELECT id FROM events; SHOW VIEWS").rows == (("v",),)
    assert ("REGEXP",) in text("SHOW FUNCTIONS").rows


def test_databases_of_another_catalog_are_listed() -> None:
    made = "CREATE CATALOG other WITH ('type' = 'generic_in_memory'); CREATE DATABASE other.shop;"
    assert ("shop",) in text(f"{made} SHOW DATABASES IN other LIKE 's%'").rows
    assert ("shop",) not in text(f"{made} SHOW DATABASES").rows
    assert "no catalog" in refused("SHOW DATABASES FROM nothing").message


def test_replace_table_as_is_made_anew_with_the_rows_of_its_query() -> None:
    made = "CREATE TABLE copies (a INT) WITH ('connector' = 'print');"
    replaced = job(f"{made} REPLACE TABLE copies WITH ('connector' = 'print') AS SELECT host FROM events")
    assert replaced.sinks[0].table.schema.names == ("host",)


def test_execute_may_stand_before_a_query() -> None:
    assert compiled("EXECUTE SELECT host FROM events") == compiled("SELECT host FROM events")


def test_explain_shows_the_plan_and_starts_nothing() -> None:
    assert text("EXPLAIN SELECT host FROM events").rows == (
        ("Project [host]",),
        ("  Scan events (rocketmq) columns=[host STRING]",),
    )


def test_a_dropped_table_is_gone_and_can_be_made_again() -> None:
    assert refused("DROP TABLE events; SELECT host FROM events").name == "SQL_UNKNOWN_TABLE"
    assert text(f"DROP TABLE events; {EVENTS}").title == "Table events is created."
    assert text("DROP TABLE IF EXISTS nothing").title == "There is no table nothing."


def test_set_without_a_value_lists_the_settings() -> None:
    rows = dict(text("SET 'execution.runtime-mode' = 'batch'; SET").rows)
    assert rows["execution.runtime-mode"] == "batch"
    assert (
        dict(text("SET 'execution.runtime-mode' = 'batch'; RESET; SET").rows)["execution.runtime-mode"] == "streaming"
    )


def test_a_session_keeps_its_tables_but_not_those_of_a_script_that_failed() -> None:
    session = SqlSession()
    session.compile(EVENTS)
    with pytest.raises(SqlError):
        session.compile("CREATE TABLE other (a INT) WITH ('connector' = 'print'); SELECT nothing FROM events")
    with pytest.raises(SqlError, match="no table or view"):
        session.compile("DESCRIBE other")
    assert session.compile("SELECT host FROM events")


def test_if_not_exists_leaves_the_table_that_is_there() -> None:
    again = EVENTS.replace("CREATE TABLE events", "CREATE TABLE IF NOT EXISTS events")
    assert text(again).title == "events exists already."
    assert refused(EVENTS).name == "SQL_TABLE_EXISTS"


def test_settings_are_written_with_and_without_quotes() -> None:
    for script in ("SET 'pipeline.name' = 'nightly'", "SET pipeline.name = nightly", "SET pipeline.name='nightly'"):
        (command,) = compiled(f"{script}; SELECT host FROM events")[1:]
        assert isinstance(command, QueryPlan)
        assert command.settings["pipeline.name"] == "nightly"
    assert text("SET table.exec.state.ttl = 1 h").title == "table.exec.state.ttl is 1 h."
    assert dict(text("SET pipeline.name = a; RESET pipeline.name; SET").rows)["pipeline.name"] == ""


def test_a_statement_set_is_one_job_in_all_its_spellings() -> None:
    made = "CREATE TABLE a (host STRING) WITH ('connector' = 'print'); CREATE TABLE b LIKE a;"
    inserts = "INSERT INTO a SELECT host FROM events; INSERT INTO b SELECT host FROM events;"
    for script in (f"EXECUTE STATEMENT SET BEGIN {inserts} END", f"BEGIN STATEMENT SET; {inserts} END;"):
        plan = job(made + script)
        assert [sink.table.name for sink in plan.sinks] == ["a", "b"]


def test_explain_takes_statement_sets_and_details() -> None:
    made = "CREATE TABLE a (host STRING) WITH ('connector' = 'print');"
    insert = "INSERT INTO a SELECT host FROM events"
    for script in (f"EXPLAIN {insert}", f"EXPLAIN PLAN FOR {insert}", f"EXPLAIN EXECUTE {insert}",
                   f"EXPLAIN STATEMENT SET BEGIN {insert}; END", f"EXPLAIN CHANGELOG_MODE {insert}"):  # fmt: skip
        assert text(made + script).rows[0] == ("Sink a (print)",)
    rows = [row for (row,) in text("EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT host FROM events").rows]
    assert rows[-1] == "Costs are not estimated."


def test_the_json_plan_names_each_node_after_those_that_it_reads() -> None:
    lines = [row for (row,) in text("EXPLAIN JSON_EXECUTION_PLAN SELECT host FROM events WHERE ok").rows]
    nodes = json.loads("\n".join(lines[lines.index("{") :]))["nodes"]
    assert [(node["type"], node["predecessors"]) for node in nodes] == [("Scan", []), ("Filter", [1]), ("Project", [2])]
    assert {node["changelog"] for node in nodes} == {"append"}


def test_show_filters_by_pattern_and_place() -> None:
    made = "CREATE DATABASE d; CREATE VIEW v AS SELECT id FROM events; CREATE VIEW d.w AS SELECT id FROM events;"
    assert text(f"{made} SHOW TABLES LIKE 'ev%'").rows == (("events",),)
    assert text(f"{made} SHOW TABLES NOT LIKE 'ev%'").rows == (("v",),)
    assert text(f"{made} SHOW TABLES ILIKE 'EV_nts'").rows == (("events",),)
    assert text(f"{made} SHOW VIEWS FROM d").rows == (("w",),)
    assert text(f"{made} SHOW DATABASES").rows == (("d",), ("default_database",))
    assert text("SHOW COLUMNS FROM events LIKE 'h%'").rows == (("host", "STRING", "TRUE", "", "", "", ""),)
    assert text("SHOW JARS").rows == ()
    assert 'Did you mean "TABLES"?' in (refused("SHOW TABELS").remedy or "")


def test_jobs_are_commands_for_whoever_runs_them() -> None:
    assert compiled("SHOW JOBS; STOP JOB 'alarms'") == [JobCommand("SHOW"), JobCommand("STOP", "alarms")]


def test_or_replace_makes_a_table_or_view_anew() -> None:
    assert text("CREATE OR REPLACE TABLE events (a INT) WITH ('connector' = 'print'); DESCRIBE events").rows == (
        ("a", "INT", "TRUE", "", "", "", ""),
    )
    assert text("CREATE VIEW v AS SELECT id FROM events; CREATE OR REPLACE VIEW v AS SELECT host FROM events; DESCRIBE v").rows == (
        ("host", "STRING", "TRUE", "", "", "", ""),
    )  # fmt: skip


def test_names_of_three_parts_and_the_database_in_use_mean_the_same_table() -> None:
    made = "CREATE CATALOG c; CREATE DATABASE c.d; CREATE TABLE c.d.t (a INT) WITH ('connector' = 'datagen');"
    for script in ("SELECT a FROM c.d.t", "USE c.d; SELECT a FROM t", "USE CATALOG c; SELECT a FROM d.t", "SELECT t.a FROM c.d.t",
                   "SELECT a FROM `c`.`d`.`t`"):  # fmt: skip
        plan = compiled(made + script)[-1]
        assert isinstance(plan, QueryPlan)
        assert plan.query.schema.names == ("a",)
    assert refused(made + "SELECT a FROM t").name == "SQL_UNKNOWN_TABLE"
    assert text(f"{made} USE c.d; SHOW CURRENT DATABASE").rows == (("d",),)
    assert text("SHOW CURRENT CATALOG").rows == (("default_catalog",),)


def test_a_database_is_dropped_only_if_it_is_empty_or_cascades() -> None:
    made = "CREATE DATABASE d; CREATE TABLE d.t (a INT) WITH ('connector' = 'datagen');"
    assert "not empty" in refused(made + "DROP DATABASE d").message
    assert text(made + "DROP DATABASE d CASCADE; SHOW DATABASES").rows == (("default_database",),)
    assert "in use" in refused("CREATE DATABASE d; USE d; DROP DATABASE d").message
    assert refused("DROP DATABASE nothing").name == "SQL_UNKNOWN_NAME"
    assert text("DROP DATABASE IF EXISTS nothing").title == "There is no database nothing."
    assert refused("USE nothing").name == refused("USE CATALOG nothing").name == "SQL_UNKNOWN_NAME"


def test_functions_of_users_are_kept_and_listed() -> None:
    path = "millstream.streams.functions.java_twins.count_char"
    made = f"CREATE TEMPORARY SYSTEM FUNCTION shout AS '{path}' LANGUAGE PYTHON;"
    assert text(f"{made} SHOW USER FUNCTIONS").rows == (("shout",),)
    assert ("class name", path) in text(f"{made} DESCRIBE FUNCTION shout").rows
    assert ("result", "BIGINT") in text(f"{made} DESCRIBE FUNCTION EXTENDED shout").rows
    assert text(f"{made} DROP TEMPORARY SYSTEM FUNCTION shout; SHOW USER FUNCTIONS").rows == ()
    assert refused(f"{made} {made}").name == "SQL_TABLE_EXISTS"
    assert refused("DROP FUNCTION shout").name == "SQL_UNKNOWN_NAME"


def test_a_call_finds_the_function_of_its_database_and_those_of_the_system() -> None:
    path = "millstream.streams.functions.java_twins.count_char"
    call = f"python:{path}(host, 'c')"
    for made in (
        f"CREATE FUNCTION tally AS '{path}'",
        f"CREATE TEMPORARY SYSTEM FUNCTION Tally AS '{path}'; CREATE DATABASE d; USE d",
    ):
        source = "default_catalog.default_database.events"
        (line, *_) = [row for (row,) in text(f"{made}; EXPLAIN SELECT tally(host, 'c') AS n FROM {source}").rows]
        assert line == f"Project [{call} AS n]"
    away = f"CREATE DATABASE d; CREATE FUNCTION d.tally AS '{path}'; SELECT tally(host, 'c') FROM events"
    assert refused(away).name == "SQL_UNKNOWN_FUNCTION"
    assert refused(f"CREATE FUNCTION tally AS '{path}'; SELECT tally(host) FROM events").name == "SQL_UNKNOWN_FUNCTION"
    assert refused(f"CREATE FUNCTION tally AS '{path}'; SELECT tally(ok, 'c') FROM events").name == "SQL_TYPE"


def test_a_function_of_the_system_hides_one_that_is_built_in_and_another_one_does_not() -> None:
    path = "millstream.streams.functions.java_twins.count_char"
    explain = "EXPLAIN SELECT INSTR(host, 'c') AS n FROM events"
    assert text(f"CREATE FUNCTION instr AS '{path}'; {explain}").rows[0] == ("Project [INSTR(host, 'c') AS n]",)
    made = f"CREATE TEMPORARY SYSTEM FUNCTION instr AS '{path}';"
    assert text(f"{made} {explain}").rows[0] == (f"Project [python:{path}(host, 'c') AS n]",)


def test_a_java_function_is_replaced_by_its_twin_or_refused() -> None:
    twin = "CREATE FUNCTION count_char AS 'com.github.nexmark.flink.udf.CountChar';"
    assert "java_twins.count_char" in text(f"{twin} EXPLAIN SELECT count_char(host, 'c') FROM events").rows[0][0]
    assert refused("CREATE FUNCTION f AS 'org.example.F' LANGUAGE JAVA").name == "SQL_UNSUPPORTED"
    error = refused("CREATE FUNCTION f AS 'no_such_module_here.f' LANGUAGE PYTHON")
    assert (error.name, "cannot be imported" in error.message) == ("SQL_UNKNOWN_FUNCTION", True)


def test_a_function_has_the_options_of_its_statement_and_others_are_refused_where_they_stand() -> None:
    made = "CREATE FUNCTION tally AS 'millstream.streams.functions.java_twins.count_char' LANGUAGE PYTHON"
    assert ("deterministic", "true") in text(f"{made}; DESCRIBE FUNCTION EXTENDED tally").rows
    said = text(f"{made} WITH ('deterministic' = 'false'); DESCRIBE FUNCTION EXTENDED tally").rows
    assert ("deterministic", "false") in said
    for option, remedy in (("timeout' = '1 s", "@udf"), ("determinstic' = 'true", 'Did you mean "deterministic"')):
        error = refused(f"{made} WITH ('{option}')")
        assert error.name == "SQL_OPTION"
        assert remedy in (error.remedy or "")
        assert error.position is not None
        assert error.position.column > len(made)
    assert "'true' or 'false', not 'maybe'" in refused(f"{made} WITH ('deterministic' = 'maybe')").message
    for kind in ("FILE", "ARCHIVE"):
        error = refused(f"{made} USING {kind} 'helpers.zip'")
        assert error.name == "SQL_UNSUPPORTED"
        assert "PYTHONPATH" in (error.remedy or "")


def test_analyze_does_nothing_and_says_so() -> None:
    assert text("ANALYZE TABLE events COMPUTE STATISTICS FOR ALL COLUMNS").title.startswith("Nothing is done")
    assert refused("ANALYZE TABLE evens COMPUTE STATISTICS").name == "SQL_UNKNOWN_TABLE"


@pytest.mark.parametrize(
    "statement", ["ADD JAR 'x.jar'", "DELETE FROM events", "UPDATE events SET id = 1", "TRUNCATE TABLE events"]
)
def test_what_can_not_be_done_to_streams_is_refused_with_what_to_do(statement: str) -> None:
    error = refused(statement)
    assert error.name == "SQL_UNSUPPORTED"
    assert error.remedy not in ("", None, "See docs/sql.md for what is supported.")


def test_a_failing_script_leaves_databases_and_variables_as_they_were() -> None:
    session = SqlSession()
    with pytest.raises(SqlError):
        session.compile("CREATE DATABASE d; USE d; SET 'var.X' = '1'; DROP TABLE nothing")
    (listed,) = session.compile("SHOW DATABASES")
    assert isinstance(listed, TextResult)
    assert listed.rows == (("default_database",),)
    with pytest.raises(SqlError, match="no variable"):
        session.compile("SELECT ${X}")


def test_an_insert_may_be_executed_or_stand_alone() -> None:
    made = "CREATE TABLE a (host STRING) WITH ('connector' = 'print');"
    for script in ("INSERT INTO a SELECT host FROM events", "EXECUTE INSERT INTO TABLE a SELECT host FROM events"):
        assert isinstance(compiled(made + script)[-1], JobPlan)
