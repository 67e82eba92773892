"""Savepoints by way of the job server: of jobs that run and of jobs that do not, and jobs that begin from one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from test_job_commands import command
from test_job_server import SCRIPT, ask, refusal, submit, until

from conftest import Served
from millstream.job_server import savepoint_answers
from millstream.job_server.driver_messages import SavepointFailed, SavepointWords, SavepointWritten
from millstream.job_server.job_record import JobFailure
from millstream.streams.jobs.identity import JobIdentity, write_identity
from millstream.streams.jobs.savepoints.savepoint import describe_savepoint
from millstream.streams.jobs.state_fit import PlannedOperator, PlannedSource, PlanState, StateRecord
from millstream.streams.plan.state_forms import StateForm
from patience import eventually

WORDS = SavepointWords("/saved", ["id"], 1_000, 3, 70, ["Savepoint id of job a"])


def keep_checkpoint(served: Served, name: str) -> None:
    """A checkpoint as a job leaves it that adds numbers up and has read nothing."""
    operator = PlannedOperator(StateForm("abc", "GROUP BY", (), ("COUNT(*) BIGINT",), ("numbers",)), ("out",), "count")
    state = StateRecord.fresh(PlanState((operator,), (PlannedSource("numbers", "topic=t"),), ("out",)))
    start = {"queues": {"b/0": 3}, "cut_ms": 0, "ended": False, "name": "numbers", "wakes": 0}
    identity = JobIdentity("id", "plan", {"numbers": start}, ["Output out"], state=state)
    write_identity(served.options.checkpoints / name / "numbers", identity)


async def asked_savepoint(served: Served) -> Any:
    """What the driver was asked for."""
    (driver,) = served.drivers.running
    await eventually(lambda: bool(driver.savepoints))
    return driver, driver.savepoints.pop()


async def test_a_job_that_runs_is_saved_by_its_driver_and_the_answer_says_where(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await submit(served)
    await until(served, "a", "running")
    words = ("savepoint", "a", "--to", str(tmp_path / "saved"), "--name", "before", "-o", "table")
    asking = asyncio.create_task(command(served, *words))
    driver, order = await asked_savepoint(served)
    assert (order.name, order.target, order.label) == ("a", str(tmp_path / "saved"), "before")
    driver.tell_event(SavepointWritten(order.id, "a", WORDS))
    assert await asking == 0
    assert capsys.readouterr().out == "The savepoint is written to /saved.\nSavepoint id of job a\n"


async def test_a_savepoint_without_a_place_lies_beside_the_checkpoints_under_a_name_that_no_job_can_have(
    served: Served,
) -> None:
    await submit(served)
    await until(served, "a", "running")
    asking = asyncio.create_task(ask(served.client.savepoint, "a"))
    driver, order = await asked_savepoint(served)
    driver.tell_event(SavepointWritten(order.id, "a", WORDS))
    assert (await asking)["size_bytes"] == 70
    place = Path(order.target)
    assert place.parent == served.options.checkpoints / "~savepoints"
    assert place.name.startswith("a-")
    assert (await refusal(served.client.submit, name="~savepoints", kind="sql", text=SCRIPT)).name == "ILLEGAL_JOB"


async def test_a_refusal_of_the_driver_and_its_end_come_back_as_they_are(served: Served) -> None:
    await submit(served)
    await until(served, "a", "running")
    asking = asyncio.create_task(refusal(served.client.savepoint, "a"))
    driver, order = await asked_savepoint(served)
    failure = JobFailure(1, "SAVEPOINT_REFUSED", "MS-6009", "It shares a query.", "Run it alone.")
    driver.tell_event(SavepointFailed(order.id, "a", failure))
    assert str(await asking) == "It shares a query. Run it alone. [MS-6009]"
    asking = asyncio.create_task(refusal(served.client.savepoint, "a"))
    driver, order = await asked_savepoint(served)
    driver.die(-9)
    refused = await asking
    assert (refused.name, "ended before" in str(refused)) == ("SAVEPOINT_REFUSED", True)


async def test_a_driver_that_takes_too_long_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(savepoint_answers, "SAVEPOINT_S", 0.0)
    await submit(served)
    await until(served, "a", "running")
    refused = await refusal(served.client.savepoint, "a", directory=str(tmp_path / "saved"))
    assert refused.name == "SAVEPOINT_REFUSED"
    assert f"Look for {tmp_path / 'saved'}" in str(refused)


async def test_a_paused_job_is_saved_from_its_checkpoint(served: Served, tmp_path: Path) -> None:
    await submit(served)
    await until(served, "a", "running")
    await ask(served.client.change, "a", "pause")
    await until(served, "a", "paused")
    refused = await refusal(served.client.savepoint, "a", directory=str(tmp_path / "saved"))
    assert refused.name == "CHECKPOINT_MISMATCH"
    keep_checkpoint(served, "a")
    found = await ask(served.client.savepoint, "a", directory=str(tmp_path / "saved"), label="before")
    assert found["directory"] == str(tmp_path / "saved")
    assert found["lines"] == describe_savepoint(tmp_path / "saved").lines()
    assert (await refusal(served.client.savepoint, "a", directory=str(tmp_path / "saved"))).name == "SAVEPOINT_REFUSED"


@pytest.mark.process
async def test_a_job_of_several_inserts_has_a_savepoint_of_as_many_parts(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    insert = "INSERT INTO shown SELECT n FROM numbers;"
    await submit(served, text=SCRIPT + insert)
    await ask(served.client.change, "a", "pause")
    await until(served, "a", "paused")
    for name in ("a", "a+1"):
        keep_checkpoint(served, name)
    saved = tmp_path / "saved"
    await ask(served.client.savepoint, "a", directory=str(saved))
    assert sorted(path.name for path in saved.iterdir()) == ["0", "1"]
    assert await command(served, "savepoint", "--describe", str(saved), "-o", "json") == 0
    assert [one["job"] for one in json.loads(capsys.readouterr().out)] == ["a", "a+1"]
    settings = {"execution.state-recovery.path": str(saved)}
    refused = await refusal(served.client.submit, name="b", kind="sql", text=SCRIPT, settings=settings)
    assert refused.name == "SAVEPOINT_REFUSED"
    assert "is of a job with 2 INSERTs, and the job has 1" in str(refused)


@pytest.mark.parametrize("directory", ["saved", "../saved"])
async def test_a_place_that_is_not_absolute_is_refused(served: Served, directory: str) -> None:
    await submit(served)
    refused = await refusal(served.client.savepoint, "a", directory=directory)
    assert (refused.name, "absolute" in str(refused)) == ("SAVEPOINT_REFUSED", True)


async def test_a_job_that_waits_for_a_driver_is_not_saved(served: Served) -> None:
    for name in "abc":
        await submit(served, name, cores=4)
    await until(served, "c", "queued")
    refused = await refusal(served.client.savepoint, "c")
    assert (refused.name, "pause it" in str(refused)) == ("JOB_STATE", True)


@pytest.mark.process
async def test_a_job_whose_savepoint_is_missing_or_does_not_fit_is_refused_and_not_kept(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.sql"
    file.write_text(SCRIPT)
    assert await command(served, "submit", str(file), "--from-savepoint", str(tmp_path / "nothing")) == 1
    assert "[MS-6009]" in capsys.readouterr().err
    keep_checkpoint(served, "a")
    await submit(served, "a")
    await ask(served.client.change, "a", "pause")
    await until(served, "a", "paused")
    await ask(served.client.savepoint, "a", directory=str(tmp_path / "saved"))
    assert await command(served, "submit", str(file), "--from-savepoint", str(tmp_path / "saved")) == 1
    told = capsys.readouterr().err
    assert "[MS-6004]" in told
    assert "Nothing is started" in told
    assert [one["name"] for one in await ask(served.client.jobs)] == ["a"]
