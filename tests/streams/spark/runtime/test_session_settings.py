"""What a session sets of Spark for the jobs that it is started for."""

from __future__ import annotations

import pytest

from millstream.streams.spark.runtime.session import CLUSTER_SETTINGS, SessionOptions, spark_settings

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def test_java_compiles_quickly_alone_where_few_rows_are_worked_on_in_it() -> None:
    usual = spark_settings(SessionOptions(), {})[JAVA_OPTIONS].split()
    few = spark_settings(SessionOptions(few_rows_in_java=True), {})[JAVA_OPTIONS].split()
    assert [option for option in few if option not in usual] == ["-XX:TieredStopAtLevel=1"]
    assert [option for option in usual if option not in few] == []


def test_sparks_own_lines_reach_the_terminal_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_DEBUG", raising=False)
    assert "-Dmillstream.spark.log=off" in spark_settings(SessionOptions(), {})[JAVA_OPTIONS].split()
    monkeypatch.setenv("MILLSTREAM_DEBUG", "1")
    assert "-Dmillstream.spark.log=error" in spark_settings(SessionOptions(), {})[JAVA_OPTIONS].split()


def test_settings_that_are_given_win_over_all_others() -> None:
    settings = spark_settings(SessionOptions(settings={JAVA_OPTIONS: "-Xss1m"}, few_rows_in_java=True), {"a": "b"})
    assert settings[JAVA_OPTIONS] == "-Xss1m"
    assert settings["a"] == "b"


def test_on_a_cluster_no_task_runs_twice_at_a_time_and_no_stage_again() -> None:
    found = spark_settings(SessionOptions(master="spark://127.0.0.1:7077"), {})
    assert {name: found[name] for name in CLUSTER_SETTINGS} == CLUSTER_SETTINGS
    assert not CLUSTER_SETTINGS.keys() & spark_settings(SessionOptions(), {}).keys()
