"""SET: what a setting may be, and what is said of one that does nothing here."""

from __future__ import annotations

import pytest
from compiling import compiled, refused

from millstream.streams.sql.options.settings import SETTINGS, check_setting
from millstream.streams.sql.session.compiler import TextResult


def said(script: str) -> str:
    result = compiled(script)[-1]
    assert isinstance(result, TextResult)
    return result.title


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("table.exec.state.ttl", "36 h"), ("table.exec.source.idle-timeout", "5s"), ("table.local-time-zone", "Europe/Berlin"),
        ("table.local-time-zone", "GMT+08:00"), ("table.local-time-zone", "UTC"), ("table.exec.sink.not-null-enforcer", "drop"),
        ("table.exec.sink.type-length-enforcer", "TRIM_PAD"), ("sql-client.execution.result-mode", "CHANGELOG"), ("execution.checkpointing.interval", "3 min"),
    ],
)  # fmt: skip
def test_settings_that_mean_something_are_taken_without_a_word(name: str, value: str) -> None:
    assert said(f"SET '{name}' = '{value}'") == f"{name} is {value}."


@pytest.mark.parametrize(
    "name",
    ["table.exec.mini-batch.enabled", "state.backend.local-recovery", "table.optimizer.agg-phase-strategy", "execution.checkpointing.mode", "state.backend.type",
     "table.exec.uid.generation", "table.exec.rank.topn-cache-size", "table.exec.mini-batch.compact-changes-enabled", "restart-strategy", "taskmanager.numberOfTaskSlots", "table.exec.sink.keyed-shuffle"],
)  # fmt: skip
def test_settings_of_flink_that_do_nothing_are_taken_and_it_is_said_why(name: str) -> None:
    assert "It does nothing: " in said(f"SET '{name}' = 'true'")


@pytest.mark.parametrize(
    ("name", "value", "helps"),
    [
        ("table.exec.state.tll", "1 h", "table.exec.state.ttl"),
        ("execution.checkpointing.intervall", "1 s", "execution.checkpointing.interval"),
        ("table.local-time-zone", "Mars/Olympus", "the name of a zone"),
        ("table.exec.state.ttl", "long", "a duration such as '5 s'"),
        ("parallelism.default", "many", "a number of tasks"),
        ("colour", "blue", "Settings: "),
        ("table.exec.sink.type-length-enforcer", "error", "cannot end a job"),
        ("table.exec.sink.nested-constraint-enforcer", "ROWS", "inside of rows, arrays and maps are not checked"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_helps(name: str, value: str, helps: str) -> None:
    error = refused(f"SET '{name}' = '{value}'")
    assert error.name == "SQL_OPTION"
    assert helps in (error.remedy or "")


def test_a_value_that_promises_what_is_not_done_is_taken_and_it_is_said() -> None:
    assert "written all the same" in said("SET 'table.exec.sink.not-null-enforcer' = 'ERROR'")


def test_every_default_is_a_legal_value() -> None:
    for setting in SETTINGS.values():
        if setting.default:
            check_setting(setting.name, setting.default)
