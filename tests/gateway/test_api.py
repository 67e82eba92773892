"""The REST API of Flink's SQL gateway: shapes of its answers, and what statements do."""

from __future__ import annotations

import threading

import pytest
from played_jobs import Gateway

from millstream.gateway import api
from millstream.gateway.jobs import MAX_JOBS
from millstream.gateway.sessions import IDLE_S, MAX_OPERATIONS, MAX_SESSIONS
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind

TABLES = (
    "CREATE TABLE visits (page STRING, ms INT) WITH ('connector' = 'rocketmq', 'topic' = 'visits')",
    "CREATE TABLE out (page STRING) WITH ('connector' = 'print')",
)


@pytest.fixture
def session(gateway: Gateway) -> str:
    handle = gateway.session()
    for table in TABLES:
        gateway.fields(handle, table)
    return handle


def test_info_and_versions_are_told_under_every_version_and_without_one(gateway: Gateway) -> None:
    for prefix in ("", "/v1", "/v2", "/v3", "/v4"):
        assert gateway.ask("GET", f"{prefix}/api_versions").document == {"versions": ["V1", "V2", "V3", "V4"]}
        assert gateway.ask("GET", f"{prefix}/info").document["productName"] == api.PRODUCT
    assert gateway.ask("GET", "/v5/info").status == 404


def test_a_statement_without_rows_answers_ok_and_then_the_end(gateway: Gateway) -> None:
    operation = gateway.run(gateway.session(), TABLES[0] + ";")
    assert gateway.page(operation, rowFormat="JSON").document == {
        "resultType": "PAYLOAD",
        "isQueryResult": False,
        "resultKind": "SUCCESS",
        "results": {
            "columns": [
                {
                    "name": "result",
                    "logicalType": {"type": "VARCHAR", "nullable": True, "length": 2**31 - 1},
                    "comment": None,
                }
            ],
            "rowFormat": "JSON",
            "data": [{"kind": "INSERT", "fields": ["OK"]}],
        },
        "nextResultUri": f"{operation}/result/1?rowFormat=JSON",
    }
    end = gateway.page(operation, 1).document
    assert (end["resultType"], end["results"]["data"]) == ("EOS", [])
    assert "nextResultUri" not in end


def test_version_1_names_no_row_format_in_the_next_uri(gateway: Gateway) -> None:
    operation = gateway.run(gateway.session(), TABLES[0]).replace("/v3/", "/v1/")
    assert gateway.page(operation).document["nextResultUri"] == f"{operation}/result/1"


def test_a_select_gives_rows_with_their_kinds_as_they_come(gateway: Gateway, session: str) -> None:
    operation = gateway.run(session, "SELECT page, COUNT(*) AS n FROM visits GROUP BY page")
    empty = gateway.page(operation).document
    (job,) = gateway.starter.started
    assert (empty["resultType"], empty["isQueryResult"], empty["resultKind"]) == (
        "PAYLOAD",
        True,
        "SUCCESS_WITH_CONTENT",
    )
    assert len(empty["jobID"]) == 32
    assert empty["nextResultUri"].endswith("/result/0?rowFormat=JSON")
    assert [column["name"] for column in empty["results"]["columns"]] == ["page", "n"]
    job.rows(("a", 1), ("a", 2), kinds=[RowKind.INSERT, RowKind.UPDATE_AFTER])
    assert gateway.page(operation).document["results"]["data"] == [
        {"kind": "INSERT", "fields": ["a", 1]},
        {"kind": "UPDATE_AFTER", "fields": ["a", 2]},
    ]
    job.rows(("b", 1))
    job.end()
    plain = gateway.page(operation, 1, rowFormat="PLAIN_TEXT").document["results"]
    assert (plain["rowFormat"], plain["data"]) == ("PLAIN_TEXT", [{"kind": "INSERT", "fields": ["b", "1"]}])
    assert gateway.page(operation, 2).document["resultType"] == "EOS"


def test_a_batch_query_whose_rows_change_gives_what_is_left(gateway: Gateway, session: str) -> None:
    gateway.fields(session, "SET 'execution.runtime-mode' = 'batch'")
    operation = gateway.run(session, "SELECT page, COUNT(*) AS n FROM visits GROUP BY page")
    gateway.page(operation)
    (job,) = gateway.starter.started
    job.rows(("a", 1), ("a", 2), kinds=[RowKind.INSERT, RowKind.UPDATE_AFTER])
    job.end()
    assert gateway.page(operation).document["results"]["data"] == [{"kind": "INSERT", "fields": ["a", 2]}]


def test_an_insert_answers_the_id_of_its_job_which_outlives_its_session(gateway: Gateway, session: str) -> None:
    document = gateway.page(gateway.run(session, "INSERT INTO out SELECT page FROM visits")).document
    select = gateway.run(session, "SELECT page FROM visits")
    gateway.page(select)
    insert, query = gateway.starter.started
    assert document["results"]["columns"][0]["name"] == "job id"
    assert document["results"]["data"][0]["fields"] == [document["jobID"]]
    assert (document["isQueryResult"], document["resultKind"]) == (False, "SUCCESS_WITH_CONTENT")
    assert gateway.ask("DELETE", f"/v3/sessions/{session}").document == {"status": "CLOSED"}
    assert (insert.now.state, query.now.state) == ("running", "ended")
    assert gateway.starter.forgotten == [query.name]
    other = gateway.session()
    ((job_id, name, state, *_),) = gateway.fields(other, "SHOW JOBS")
    assert (job_id, name, state) == (document["jobID"], "insert-into-out", "running")
    assert gateway.fields(other, f"STOP JOB '{job_id}'") == [["OK"]]
    assert insert.now.state == "ended"
    assert gateway.fields(other, "SHOW JOBS")[0][2] == "stopped"


def test_only_a_job_with_a_name_of_its_own_goes_on_at_a_checkpoint(gateway: Gateway, session: str) -> None:
    gateway.fields(session, "INSERT INTO out SELECT page FROM visits")
    gateway.fields(session, "SET 'pipeline.name' = 'copy'")
    gateway.fields(session, "INSERT INTO out SELECT page FROM visits")
    first, second = gateway.starter.started
    assert (first.keeps_state, second.keeps_state, second.name) == (False, True, "copy")
    assert first.name.startswith("job-")


def test_a_statement_set_that_comes_statement_by_statement_is_one_job(gateway: Gateway, session: str) -> None:
    for statement in ("BEGIN STATEMENT SET;", "INSERT INTO out SELECT page FROM visits;"):
        assert gateway.fields(session, statement) == [["OK"]]
    refused = gateway.page(gateway.run(session, "SHOW TABLES;"))
    assert refused.status == 501
    typo = gateway.page(gateway.run(session, "INSERT INTO out SELECT pag FROM visits;"))
    assert "pag" in typo.document["errors"][0]
    gateway.fields(session, "INSERT INTO out SELECT page FROM visits WHERE ms > 1;")
    assert not gateway.starter.started
    gateway.fields(session, "END;")
    (job,) = gateway.starter.started
    assert len(job.plan.sinks) == 2  # type: ignore[union-attr]
    assert gateway.fields(session, "SHOW TABLES") == [["out"], ["visits"]]


def test_with_dml_sync_an_insert_is_done_when_its_job_has_ended(gateway: Gateway, session: str) -> None:
    operation = gateway.run(
        session, "INSERT INTO out SELECT page FROM visits", executionConfig={"table.dml-sync": "true"}
    )
    while not gateway.starter.started:
        assert gateway.ask("GET", f"{operation}/status").document["status"] in ("PENDING", "RUNNING")
    assert gateway.ask("GET", f"{operation}/result/0").document["resultType"] == "NOT_READY"
    gateway.starter.started[0].end()
    assert gateway.page(operation).document["resultType"] == "PAYLOAD"


def test_a_canceled_wait_for_a_job_stops_the_job(gateway: Gateway, session: str) -> None:
    operation = gateway.run(
        session, "INSERT INTO out SELECT page FROM visits", executionConfig={"table.dml-sync": "true"}
    )
    while not gateway.starter.started:
        pass
    assert gateway.ask("POST", f"{operation}/cancel").document == {"status": "CANCELED"}
    # The next statement of the session runs once that one is over.
    assert gateway.fields(session, "SHOW JOBS")[0][2] == "stopped"


def test_an_error_of_a_statement_is_told_where_its_result_is_fetched(gateway: Gateway, session: str) -> None:
    operation = gateway.run(session, "SELECT nothing FROM visits")
    refused = gateway.page(operation)
    assert refused.status == 500
    assert "nothing" in refused.document["errors"][0]
    assert gateway.ask("GET", f"{operation}/status").document == {"status": "ERROR"}


def test_an_unfinished_statement_is_told_so_that_flinks_client_waits_for_its_next_line(
    gateway: Gateway, session: str
) -> None:
    for statement in ("SELECT", "EXECUTE STATEMENT SET BEGIN INSERT INTO out SELECT page FROM visits;"):
        assert 'Encountered "<EOF>"' in gateway.page(gateway.run(session, statement)).document["errors"][0]
    wrong = gateway.page(gateway.run(session, "SELECT FROM FROM")).document["errors"][0]
    assert "<EOF>" not in wrong


def test_a_job_that_fails_fails_its_operation(gateway: Gateway, session: str) -> None:
    operation = gateway.run(session, "SELECT page FROM visits")
    gateway.page(operation)
    gateway.starter.started[0].failure = JobError("JOB_FAILED", "the broker went")
    refused = gateway.page(operation)
    assert (refused.status, "the broker went" in refused.document["errors"][0]) == (500, True)
    assert gateway.ask("GET", f"{operation}/status").document == {"status": "ERROR"}


def test_an_unexpected_failure_of_a_start_is_an_error_and_ends_no_thread(gateway: Gateway, session: str) -> None:
    gateway.starter.refusal = RuntimeError("no memory")
    assert "no memory" in gateway.page(gateway.run(session, "SELECT page FROM visits")).document["errors"][0]
    assert gateway.fields(session, "SHOW TABLES") == [["out"], ["visits"]]


def test_cancel_and_close_end_the_job_of_a_select(gateway: Gateway, session: str) -> None:
    first, second = (gateway.run(session, "SELECT page FROM visits") for _ in range(2))
    gateway.page(first)
    gateway.page(second)
    assert gateway.ask("POST", f"{first}/cancel").document == {"status": "CANCELED"}
    assert gateway.ask("GET", f"{first}/status").document == {"status": "CANCELED"}
    assert "canceled" in gateway.page(first).document["errors"][0]
    assert gateway.ask("DELETE", f"{second}/close").document == {"status": "CLOSED"}
    assert gateway.page(second).status == 404
    assert [job.now.state for job in gateway.starter.started] == ["ended", "ended"]


def test_rows_of_explain_and_show_create_are_one_text(gateway: Gateway, session: str) -> None:
    ((plan,),) = gateway.fields(session, "EXPLAIN SELECT page FROM visits")
    assert len(plan.splitlines()) > 1
    ((text,),) = gateway.fields(session, "SHOW CREATE TABLE visits")
    assert text.startswith("CREATE TABLE")


def test_a_session_is_configured_and_tells_its_settings(gateway: Gateway) -> None:
    properties = {"execution.runtime-mode": "batch", "execution.target": "remote"}
    assert gateway.session(sessionName=None, properties=None)
    session = gateway.session(sessionName="me", properties=properties)
    configured = gateway.ask(
        "POST", f"/v3/sessions/{session}/configure-session", {"statement": "SET 'pipeline.name' = 'it''s';"}
    )
    assert (configured.status, configured.document) == (200, {})
    told = gateway.ask("GET", f"/v3/sessions/{session}").document["properties"]
    assert told.items() >= {**properties, "pipeline.name": "it's"}.items()
    refused = gateway.ask("POST", f"/v3/sessions/{session}/configure-session", {"statement": "SELECT 1"})
    assert refused.status == 501


def test_a_session_with_an_illegal_setting_is_refused_and_not_kept(gateway: Gateway) -> None:
    refused = gateway.ask("POST", "/v3/sessions", {"properties": {"execution.runtime-mode": "maybe"}})
    assert (refused.status, len(gateway.sessions)) == (500, 0)


def test_names_are_completed(gateway: Gateway, session: str) -> None:
    body = {"statement": "SELECT * FROM vis", "position": 17}
    for method in ("GET", "POST"):
        found = gateway.ask(method, f"/v3/sessions/{session}/complete-statement", body)
        assert found.document == {"candidates": ["visits"]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v3/sessions/none", b"", 404),
        ("POST", "/v3/sessions/none/heartbeat", b"", 404),
        ("GET", "/v3/nothing", b"", 404),
        ("PUT", "/v3/sessions", b"", 405),
        ("POST", "/v3/sessions", b"{", 400),
        ("POST", "/v3/sessions", b"[1]", 400),
        ("POST", "/v3/sessions", b'{"properties": 3}', 400),
        ("POST", "/v3/sessions", b'{"sessionName": 3}', 400),
        ("POST", "/v3/sessions/{session}/statements", b"{}", 400),
        ("POST", "/v3/sessions/{session}/statements", b'{"statement": 3}', 400),
        ("POST", "/v3/sessions/{session}/statements", b'{"statement": "SHOW TABLES", "executionTimeout": 5}', 501),
        ("POST", "/v4/sessions/{session}/scripts", b'{"script": "SELECT 1"}', 501),
        ("GET", "/v3/sessions/{session}/operations/none/status", b"", 404),
        ("GET", "/v3/sessions/{session}/operations/none/result/0", b"", 404),
        ("GET", "/v3/sessions/{session}/operations/none/result/x", b"", 404),
    ],
)
def test_what_cannot_be_answered_is_an_error_in_flinks_form(
    gateway: Gateway, session: str, method: str, path: str, body: bytes, status: int
) -> None:
    reply = gateway.ask(method, path.replace("{session}", session), body)
    assert reply.status == status
    assert [type(words) for words in reply.document["errors"]] == [str]


def test_wrong_tokens_row_formats_and_settings_of_one_statement_are_refused(gateway: Gateway, session: str) -> None:
    operation = gateway.run(session, "SHOW TABLES")
    assert gateway.page(operation, 7).status == 400
    assert gateway.page(operation, rowFormat="XML").status == 400
    wrong = gateway.page(gateway.run(session, "SELECT 1", executionConfig={"execution.runtime-mode": "x"}))
    assert "execution.runtime-mode" in wrong.document["errors"][0]
    several = gateway.page(gateway.run(session, "USE default_database; SHOW TABLES"))
    assert "2 statements" in several.document["errors"][0]
    assert gateway.page(gateway.run(session, "PRINT 'visits'")).status == 501


def test_sessions_operations_and_jobs_are_limited(gateway: Gateway, session: str) -> None:
    for _ in range(MAX_OPERATIONS):
        gateway.page(gateway.run(session, "SELECT page FROM visits"))
    body = {"statement": "SHOW TABLES"}
    assert gateway.ask("POST", f"/v3/sessions/{session}/statements", body).status == 503
    for _ in range(MAX_SESSIONS - 1):
        gateway.session()
    assert gateway.ask("POST", "/v3/sessions", b"{}").status == 503
    gateway.ask("DELETE", f"/v3/sessions/{session}")
    fresh = gateway.session()
    for table in TABLES:
        gateway.fields(fresh, table)
    for _ in range(MAX_JOBS):
        operation = gateway.run(fresh, "INSERT INTO out SELECT page FROM visits")
        assert gateway.page(operation).status == 200
        gateway.ask("DELETE", f"{operation}/close")
    full = gateway.page(gateway.run(fresh, "INSERT INTO out SELECT page FROM visits"))
    assert full.status == 503
    gateway.starter.started[-1].end()
    assert gateway.page(gateway.run(fresh, "INSERT INTO out SELECT page FROM visits")).status == 200


def test_a_client_that_closes_no_operation_goes_on_and_keeps_its_endless_queries(
    gateway: Gateway, session: str
) -> None:
    endless = gateway.run(session, "SELECT page FROM visits")
    gateway.page(endless)
    for _ in range(MAX_OPERATIONS * 2):
        assert gateway.fields(session, "SHOW TABLES") == [["out"], ["visits"]]
    assert gateway.page(endless).document["resultType"] == "PAYLOAD"


def test_a_job_that_starts_has_its_name_already_and_can_be_stopped(gateway: Gateway, session: str) -> None:
    go_on = threading.Event()
    start = gateway.starter.start

    def slow(*arguments: object, **more: object) -> object:
        go_on.wait()
        return start(*arguments, **more)  # type: ignore[arg-type]

    gateway.starter.start = slow  # type: ignore[method-assign,assignment]
    operation = gateway.run(session, "INSERT INTO out SELECT page FROM visits")
    other = gateway.session()
    while not (jobs := gateway.fields(other, "SHOW JOBS")):
        pass
    assert jobs[0][1:3] == ["insert-into-out", "running"]
    assert gateway.fields(other, "STOP JOB 'insert-into-out'") == [["OK"]]
    go_on.set()
    gateway.page(operation)
    (job,) = gateway.starter.started
    assert job.now.state == "ended"
    assert gateway.fields(other, "SHOW JOBS")[0][2] == "stopped"
    assert gateway.starter.forgotten == [job.name]


def test_a_job_that_does_not_start_is_none(gateway: Gateway, session: str) -> None:
    gateway.starter.refusal = JobError("SPARK_START_FAILED", "no memory")
    assert gateway.page(gateway.run(session, "INSERT INTO out SELECT page FROM visits")).status == 500
    assert gateway.fields(session, "SHOW JOBS") == []


def test_the_oldest_ended_jobs_are_forgotten(gateway: Gateway, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.gateway.jobs.MAX_ENDED_JOBS", 2)
    for name in ("first", "second", "third", "fourth"):
        gateway.fields(session, f"SET 'pipeline.name' = '{name}'")
        gateway.fields(session, "INSERT INTO out SELECT page FROM visits")
        if name != "fourth":
            gateway.starter.started[-1].end()
    assert [row[1] for row in gateway.fields(session, "SHOW JOBS")] == ["second", "third", "fourth"]


def test_a_session_that_nobody_uses_is_closed_and_a_heartbeat_keeps_it(gateway: Gateway) -> None:
    idle, kept = gateway.session(), gateway.session()
    gateway.clock.advance_ms(round(IDLE_S * 1000) - 1000)
    assert gateway.ask("POST", f"/v3/sessions/{kept}/heartbeat").status == 200
    gateway.clock.advance_ms(2000)
    assert gateway.sessions.close_idle() == [idle]
    assert gateway.ask("GET", f"/v3/sessions/{idle}").status == 404
    assert gateway.ask("GET", f"/v3/sessions/{kept}").status == 200


def test_a_session_runs_one_statement_after_the_other_and_sessions_do_not_wait_for_each_other(
    gateway: Gateway, session: str
) -> None:
    go_on = threading.Event()
    start = gateway.starter.start

    def slow(*arguments: object, **more: object) -> object:
        go_on.wait()
        return start(*arguments, **more)  # type: ignore[arg-type]

    gateway.starter.start = slow  # type: ignore[method-assign,assignment]
    waiting = gateway.run(session, "SELECT page FROM visits")
    behind = gateway.run(session, "SHOW TABLES")
    assert gateway.fields(gateway.session(), "SHOW CATALOGS") == [["default_catalog"]]
    assert gateway.ask("GET", f"{behind}/status").document == {"status": "PENDING"}
    go_on.set()
    assert gateway.page(waiting).status == 200
    assert gateway.page(behind).status == 200
