"""`millstream sql` against a server and real Spark, as scripts use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ran, run

pytestmark = pytest.mark.process


Command = Callable[..., Ran]

HOT = """
CREATE TABLE readings (device STRING, celsius DOUBLE) WITH ('connector' = 'rocketmq', 'topic' = 'readings');
SELECT device, celsius FROM readings WHERE celsius > 40
"""


@pytest.mark.spark
def test_a_query_shows_its_rows_and_sets_malformed_messages_aside(millstream: Command, tmp_path: Path) -> None:
    good = ['{"device":"a","celsius":21.5}', '{"device":"b","celsius":"48"}']
    bad = ["not json", '{"device":"c","celsius":true}']
    millstream("topic", "create", "readings", "--queues", "2")
    assert millstream("produce", "readings", "-", stdin="\n".join(good + bad)).code == 0
    script = tmp_path / "hot.sql"
    script.write_text(HOT)
    done = millstream("sql", "--bounded", "-f", str(script), "-o", "json")
    assert done.code == 0, done.err
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"sink": "result", "row": {"device": "b", "celsius": 48.0}}
    ]
    progress = json.loads(done.err.splitlines()[-1])["progress"]
    assert (progress["state"], progress["rows_in"], progress["malformed"]) == ("ended", 4, 2)
    dead = millstream("consume", "readings_dead_letter", "--until-end").out.splitlines()
    assert sorted(dead) == sorted(bad)


def test_a_typo_is_shown_before_anything_starts() -> None:
    refused = run(
        "sql", "-e", HOT.replace("device, celsius FROM", "devise, celsius FROM"), "--nameserver", "127.0.0.1:1"
    )
    assert refused.code == 1
    assert 'Did you mean "device"?' in refused.err
    assert "^^^^^^" in refused.err
    assert "MS-7004" in refused.err
    assert "Spark" not in refused.err


def test_several_files_run_as_one_script_and_a_fault_names_its_file(tmp_path: Path) -> None:
    tables, query = tmp_path / "tables.sql", tmp_path / "query.sql"
    tables.write_text(HOT.partition(";")[0])
    query.write_text(HOT.partition(";")[2])
    shown = run("sql", "explain", "-f", str(tables), "-f", str(query))
    assert shown.code == 0
    assert "Filter >(celsius, 40)" in shown.out
    query.write_text("SELECT devise FROM readings")
    refused = run("sql", "-f", str(tables), "-f", str(query))
    assert refused.code == 1
    assert "query.sql" in refused.err
    assert 'Did you mean "device"?' in refused.err


def test_an_unknown_topic_is_refused_before_spark_starts(millstream: Command) -> None:
    refused = millstream("sql", "--bounded", "-e", HOT.replace("'readings')", "'missing')"))
    assert refused.code == 1
    assert "MS-2101" in refused.err
    assert "Spark" not in refused.err


def test_statements_that_only_show_need_no_server() -> None:
    shown = run("sql", "-e", HOT.split(";")[0] + "; DESCRIBE readings", "-o", "json")
    assert shown.code == 0
    assert json.loads(shown.out)[1] == {
        "name": "celsius",
        "type": "DOUBLE",
        "null": "TRUE",
        "key": "",
        "extras": "",
        "watermark": "",
        "comment": "",
    }


def test_explain_shows_the_plans_of_a_script_and_starts_nothing() -> None:
    shown = run("sql", "explain", "-e", HOT, "-o", "plain", "--nameserver", "127.0.0.1:1")
    assert shown.code == 0
    assert shown.out.splitlines()[0].startswith("Project [device, celsius]")
    assert "Scan readings (rocketmq)" in shown.out
    nothing = run("sql", "explain", "-e", "SHOW TABLES")
    assert (nothing.code, "MS-7010" in nothing.err) == (1, True)


def test_no_script_or_two_is_a_usage_error_and_an_unreadable_one_is_refused() -> None:
    assert run("sql").code == 2
    assert run("sql", "-e", "SHOW TABLES", "-f", "x.sql").code == 2
    missing = run("sql", "-f", "no-such-file.sql")
    assert (missing.code, "MS-7010" in missing.err) == (1, True)
