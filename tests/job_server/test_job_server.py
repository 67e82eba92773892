"""A job server over its HTTP interface: what it takes, what it refuses, and what its drivers are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest

from conftest import Served
from millstream.job_server.driver_messages import Ended, Failed, JobsProgress
from millstream.job_server.job_record import (
    LEADER_KEY,
    MAX_TEXT_BYTES,
    JobFailure,
    LeaderRecord,
    decode_leader,
    encode_record,
)
from millstream.job_server.job_topic import JobTopic
from millstream.job_server.openapi import openapi_document
from millstream.job_server.routes import ROUTES
from millstream.model.errors import MillstreamError
from millstream.streams.jobs.progress import JobProgress
from patience import PATIENCE_S, eventually

SCRIPT = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print');
INSERT INTO shown SELECT n FROM numbers;
"""


async def ask(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The answer of a client, which blocks."""
    return await asyncio.to_thread(call, *arguments, **named)


async def refusal(call: Callable[..., Any], *arguments: Any, **named: Any) -> MillstreamError:
    with pytest.raises(MillstreamError) as refused:
        await ask(call, *arguments, **named)
    return refused.value


async def submit(served: Served, name: str = "a", **values: Any) -> Any:
    return await ask(served.client.submit, **{"name": name, "kind": "sql", "text": SCRIPT, **values})


async def raw(served: Served, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
    """A request as nobody of ours sends it: its status and JSON."""

    def send() -> tuple[int, Any]:
        connection = HTTPConnection(served.url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    return await asyncio.to_thread(send)


async def state(served: Served, name: str) -> str:
    found = await ask(served.client.describe, name)
    assert isinstance(found["state"], str)
    return found["state"]


async def until(served: Served, name: str, wanted: str) -> None:
    assert served.server.leadership is not None
    jobs = served.server.leadership.book.jobs
    await eventually(lambda: jobs[name].state == wanted)


async def test_a_job_that_is_submitted_is_listed_and_runs(served: Served) -> None:
    kept = await submit(served, settings={"millstream.max-rows-per-trigger": "5"})
    assert (kept["name"], kept["state"], kept["generation"]) == ("a", "queued", 1)
    await until(served, "a", "running")
    (listed,) = await ask(served.client.jobs)
    assert listed["state"] == "running"
    assert "text" not in listed
    assert (await ask(served.client.describe, "a"))["text"] == SCRIPT
    assert await ask(served.client.logs, "a", 1) == ["line 2"]


async def test_a_job_is_paused_resumed_and_cancelled(served: Served) -> None:
    await submit(served)
    await until(served, "a", "running")
    for action, wanted in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        await ask(served.client.change, "a", action)
        await until(served, "a", wanted)
    refused = await refusal(served.client.change, "a", "resume")
    assert refused.name == "JOB_STATE"


async def test_of_two_submissions_of_one_name_at_a_time_one_is_taken(served: Served) -> None:
    answers = await asyncio.gather(*(submit(served) for _ in range(4)), return_exceptions=True)
    refused = [one for one in answers if isinstance(one, MillstreamError)]
    assert [one.name for one in refused] == ["JOB_EXISTS"] * 3
    assert len(await ask(served.client.jobs)) == 1


async def test_secrets_of_a_script_are_not_shown(served: Served) -> None:
    text = SCRIPT.replace("'connector' = 'print'", "'connector' = 'http', 'url' = 'http://x', 'token' = 'hunter22'")
    await submit(served, text=text)
    shown = (await ask(served.client.describe, "a"))["text"]
    assert "hunter22" not in shown
    assert "'url' = 'http://x'" in shown


async def test_a_late_record_of_the_leader_before_is_replaced(served: Served) -> None:
    topic = JobTopic(served.options.nameserver)
    assert served.server.leadership is not None
    present = served.server.leadership.book.leader
    try:
        late = LeaderRecord(epoch=0, server="other", url="http://127.0.0.1:1")
        await asyncio.to_thread(topic.write, LEADER_KEY, encode_record(late))
        reader = await asyncio.to_thread(topic.reader)

        def newest() -> Any:
            return decode_leader(reader.read_snapshot()[LEADER_KEY.encode()])

        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while (found := await asyncio.to_thread(newest)) != present:
            assert asyncio.get_running_loop().time() < deadline_s, found
            reader = await asyncio.to_thread(topic.reader)
    finally:
        topic.close()
    assert served.is_leading


async def test_a_name_that_is_over_is_given_anew_with_a_checkpoint_of_its_own(served: Served) -> None:
    await submit(served)
    assert (await refusal(served.client.submit, name="a", kind="sql", text=SCRIPT)).name == "JOB_EXISTS"
    await ask(served.client.change, "a", "cancel")
    await until(served, "a", "cancelled")
    assert (await submit(served))["life"] == 2
    assert served.server.leadership is not None
    assert served.server.leadership.book.jobs["a"].directory == "a~2"


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"text": "INSERT INTO nowhere SELECT 1"}, "SQL_UNKNOWN_TABLE"),
        ({"text": "SELECT 1"}, "ILLEGAL_JOB"),
        ({"text": "SET 'a.b' = 'c'"}, "SQL_OPTION"),
        ({"settings": {"table.exec.state.tll": "1 h"}}, "SQL_OPTION"),
        ({"name": "a/b"}, "ILLEGAL_JOB"),
        ({"cores": 5}, "JOB_DEMAND"),
        ({"cores": -1}, "ILLEGAL_JOB"),
        ({"kind": "perl"}, "JOB_REQUEST"),
    ],
)
async def test_what_cannot_be_a_job_is_refused_and_nothing_is_kept(
    served: Served, values: dict[str, Any], name: str
) -> None:
    refused = await refusal(served.client.submit, **{"name": "a", "kind": "sql", "text": SCRIPT, **values})
    assert refused.name == name
    assert await ask(served.client.jobs) == []


async def test_a_refusal_of_sql_shows_the_place_and_its_number_once(served: Served) -> None:
    refused = await refusal(served.client.submit, name="a", kind="sql", text="INSERT INTO nowhere SELECT 1")
    assert "line 1, column 13" in str(refused)
    assert str(refused).count(refused.label) == 1


async def test_unknown_jobs_are_told_with_the_nearest_name(served: Served) -> None:
    await submit(served, "orders")
    for call in (
        lambda: served.client.describe("order"),
        lambda: served.client.change("order", "pause"),
        lambda: served.client.logs("order", 3),
        lambda: served.client.update("order", text=None, settings=None, apply=True),
    ):
        refused = await refusal(call)
        assert refused.name == "JOB_NOT_FOUND"
        assert 'Did you mean "orders"?' in str(refused)


async def test_a_driver_that_dies_is_started_again_with_all_its_jobs(served: Served) -> None:
    for name in "ab":
        await submit(served, name)
        await until(served, name, "running")
    served.drivers.running[0].die(-9)
    await eventually(lambda: len(served.drivers.running) == 1 and len(served.drivers.made) == 2)
    await until(served, "b", "running")
    assert served.drivers.made[1].starts == [["a", "b"]]
    found = await ask(served.client.describe, "a")
    assert found["restarts"] == 1
    assert found["failures"][-1]["label"] == "MS-6025"
    assert "signal 9" in found["failures"][-1]["message"]


async def test_a_job_that_fails_for_good_stays_so_until_it_is_resumed_and_the_others_run_on(served: Served) -> None:
    for name in "ab":
        await submit(served, name)
        await until(served, name, "running")
    failure = JobFailure(1, "SINK_FAILED", "MS-6005", "It is full.")
    served.drivers.running[0].tell_event(Failed("a", failure, may_pass=False))
    await until(served, "a", "failed")
    assert await state(served, "b") == "running"
    await ask(served.client.change, "a", "resume")
    await until(served, "a", "running")
    assert (await ask(served.client.describe, "a"))["failures"][-1]["message"] == "It is full."


async def test_a_job_that_has_read_all_has_ended_and_its_own_driver_with_it(served: Served) -> None:
    await submit(served, cores=2, settings={"spark.task.cpus": "2"})
    await until(served, "a", "running")
    (driver,) = served.drivers.running
    assert (driver.options.cores, driver.options.settings) == (2, {"spark.task.cpus": "2"})
    driver.tell_event(Ended("a"))
    await eventually(lambda: not served.drivers.running)
    assert await state(served, "a") == "ended"


async def test_progress_is_shown_while_a_job_runs_and_unknown_values_as_none(served: Served) -> None:
    await submit(served)
    await until(served, "a", "running")
    from dataclasses import asdict

    served.drivers.running[0].tell_event(JobsProgress({"a": asdict(JobProgress(rows_in=7, rows_out={"shown": 6}))}))
    found = await ask(served.client.describe, "a")
    assert (found["progress"]["rows_in"], found["progress"]["behind"]) == (7, None)
    assert found["progress"]["watermark_lag_s"] is None


async def test_the_server_that_does_not_lead_sends_clients_on_and_takes_over(start_server: Any) -> None:
    first: Served = await start_server("one")
    await eventually(lambda: first.is_leading)
    second: Served = await start_server("two")
    await submit(second)
    assert first.server.leadership is not None
    assert list(first.server.leadership.book.jobs) == ["a"]
    await until(first, "a", "running")
    assert not second.is_leading
    await first.server.close()
    assert not first.drivers.running
    await eventually(lambda: second.is_leading)
    await until(second, "a", "running")
    assert second.drivers.running[0].starts == [["a"]]
    assert second.server.leadership is not None
    assert second.server.leadership.book.epoch == 2


async def test_a_server_whose_jobs_were_taken_ends_its_drivers(start_server: Any) -> None:
    first: Served = await start_server("one")
    await eventually(lambda: first.is_leading)
    await submit(first)
    await until(first, "a", "running")
    topic = JobTopic(first.options.nameserver)
    taken = LeaderRecord(epoch=9, server="other", url="http://127.0.0.1:1")
    try:
        await asyncio.to_thread(topic.write, LEADER_KEY, encode_record(taken))
    finally:
        topic.close()
    await eventually(lambda: not first.drivers.running)
    # The lock is its own still, so it leads again, with a newer epoch.
    assert first.server.leadership is not None
    await eventually(lambda: first.is_leading and first.server.leadership.book.epoch == 10)
    await until(first, "a", "running")
    # What was noted when the topic took no more is noted again.
    (event,) = (await ask(first.client.describe, "a"))["events"]
    assert (event["kind"], "could not renew its lock" in event["words"]) == ("restarted", True)


async def test_a_server_with_a_token_answers_nobody_without_it(start_server: Any) -> None:
    served: Served = await start_server(token="a secret")
    await eventually(lambda: served.is_leading)
    assert await ask(served.client.jobs) == []
    for headers in ({}, {"Authorization": "Bearer another"}):
        status, told = await raw(served, "GET", "/v1/jobs", **headers)
        assert (status, told["code"]) == (401, "JOB_TOKEN")


async def test_web_pages_cannot_send_jobs(served: Served) -> None:
    body = json.dumps({"name": "a", "text": SCRIPT}).encode()
    status, told = await raw(served, "POST", "/v1/jobs", body, Content_Type="text/plain")
    assert (status, told["code"]) == (400, "JOB_REQUEST")
    status, told = await raw(served, "GET", "/v1/jobs", Host="rebound.example:80")
    assert (status, told["code"]) == (400, "JOB_REQUEST")
    assert await ask(served.client.jobs) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/jobs", b"{", 400),
        ("POST", "/v1/jobs", b"[]", 400),
        ("POST", "/v1/jobs", b'{"name": "a", "text": "x", "other": 1}', 400),
        ("POST", "/v1/jobs", b" " * (MAX_TEXT_BYTES + 1), 413),
        ("GET", "/v1/jobs/a/logs?lines=-1", b"", 400),
        ("GET", "/v1/jobs/a", b"", 404),
        ("GET", "/v2/jobs", b"", 404),
        ("DELETE", "/v1/jobs", b"", 405),
        ("POST", "/v1/jobs/a/explode", b"{}", 404),
    ],
)
async def test_requests_that_make_no_sense_are_refused_by_the_catalogue(
    served: Served, method: str, path: str, body: bytes, status: int
) -> None:
    answered, told = await raw(served, method, path, body, Content_Type="application/json")
    assert answered == status
    assert told["number"].startswith("MS-")
    assert told["message"]


async def test_the_description_has_every_route_and_no_other(served: Served) -> None:
    status, told = await raw(served, "GET", "/v1/openapi.json")
    assert status == 200
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}
    assert told == json.loads(json.dumps(openapi_document()))
    for route in ROUTES:
        path = route.path.replace("{name}", "nobody")
        answered, _ = await raw(served, route.method, path, b"{}", Content_Type="application/json")
        assert answered != 405
        assert str(answered) in told["paths"][route.path][route.method.lower()]["responses"]


async def test_the_page_shows_jobs_and_no_markup_of_theirs(served: Served) -> None:
    await submit(served, "a-job")
    assert served.server.service is not None
    from millstream.job_server.job_page import job_page

    (job,) = served.server.jobs()
    page = job_page([{**job, "reason": "<script>"}])
    assert "a-job" in page
    assert "<script>" not in page
