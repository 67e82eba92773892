"""Secrets in jobs: a warning when they come in, and stars in all that is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_job_commands import command
from test_job_server import SCRIPT, ask, submit, until

from conftest import Served
from millstream.job_server.driver_messages import Failed
from millstream.job_server.job_record import JobFailure
from millstream.job_server.secrets import hide_in, secrets_in, warn_of_secrets
from millstream.streams.secrets import HIDDEN

SECRET = "hunter22"
WITH_SECRET = SCRIPT.replace("'connector' = 'print'", f"'connector' = 'http', 'url' = 'http://x', 'token' = '{SECRET}'")
SETTINGS = {"spark.hadoop.fs.s3a.secret.key": "s3cr3tkey", "spark.ui.enabled": "false"}


@pytest.mark.process
async def test_a_secret_is_warned_of_and_shown_nowhere_afterwards(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.sql"
    file.write_text(WITH_SECRET)
    setting = "spark.hadoop.fs.s3a.secret.key=s3cr3tkey"
    assert await command(served, "submit", str(file), "--set", setting, "-o", "json") == 0
    warned = capsys.readouterr().err
    assert "warning: The job has secrets as plain text (line 3, spark.hadoop.fs.s3a.secret.key)" in warned
    assert "${env:NAME}" in warned
    await until(served, "a", "running")
    (driver,) = served.drivers.running
    served.options.directory.joinpath("logs", "job-a.log").write_text(f"Authorization: Bearer {SECRET}\n")
    failure = JobFailure(1, "SINK_FAILED", "MS-6005", f"The server refuses {SECRET} and s3cr3tkey.")
    driver.tell_event(Failed("a", failure, may_pass=True))
    shown: list[Any] = [await ask(served.client.describe, "a"), await ask(served.client.jobs)]
    shown.append(await ask(served.client.logs, "a", 10))
    shown.append(await ask(served.client.update, "a", text=None, settings=None, apply=False))
    told = json.dumps(shown)
    assert SECRET not in told
    assert "s3cr3tkey" not in told
    assert f"The server refuses {HIDDEN} and {HIDDEN}." in told
    assert shown[0]["settings"] == {"spark.hadoop.fs.s3a.secret.key": HIDDEN}
    assert shown[2] == [f"Authorization: Bearer {HIDDEN}"]


async def test_a_reference_to_the_environment_is_no_secret(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    file = tmp_path / "a.sql"
    file.write_text(WITH_SECRET.replace(SECRET, "${env:API_TOKEN}"))
    assert await command(served, "submit", str(file)) == 0
    assert capsys.readouterr().err == ""
    assert "'${env:API_TOKEN}'" in (await ask(served.client.describe, "a"))["text"]
    assert (await submit(served, "b"))["notices"] == []


def test_many_places_are_counted() -> None:
    text = "\n".join(f"'password' = 'geheim{number}'" for number in range(8))
    (warned,) = warn_of_secrets(text, {})
    assert "(line 1, line 2, line 3, line 4, line 5 and 3 more)" in warned


@given(st.text(max_size=30), st.sampled_from(["my.password", "a.token", "plain"]))
def test_a_setting_is_hidden_by_its_name_and_any_other_value_stays(value: str, name: str) -> None:
    shown = hide_in({"settings": {name: value}}, secrets_in("", {name: value}))["settings"][name]
    is_secret = name != "plain" and value and not value.startswith("${")
    if is_secret:
        assert shown == HIDDEN
    elif "password=" not in value.lower() and "://" not in value:
        assert shown == value
