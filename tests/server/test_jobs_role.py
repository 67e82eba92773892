"""The role of a job server: what it needs to listen, and what its page of metrics tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.client.job_server import TOKEN_VARIABLE
from millstream.model.errors import StartRefused
from millstream.server.configuration.roles import JobsConfiguration
from millstream.server.jobs_role import JobsRole
from millstream.server.metrics.jobs import add_jobs
from millstream.telemetry.metrics import MetricsPage


async def test_it_does_not_listen_for_other_machines_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    role = JobsRole(JobsConfiguration(host="0.0.0.0", port=0, directory=str(tmp_path / "jobs")))
    with pytest.raises(StartRefused) as refused:
        await role.start()
    assert TOKEN_VARIABLE in str(refused.value)


async def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    configuration = JobsConfiguration(port=0, directory=str(tmp_path / "jobs"), nameservers=("127.0.0.1:1",))
    first = JobsRole(configuration)
    assert set(await first.start()) == {"http"}
    try:
        with pytest.raises(StartRefused) as refused:
            await JobsRole(configuration).start()
        assert refused.value.name == "DATA_DIRECTORY_IN_USE"
    finally:
        await first.close()


def test_what_is_not_known_of_a_job_is_not_on_the_page() -> None:
    page = MetricsPage(cluster="c", node_id="n")
    counts = {"rows_in": 3, "batches": 1, "late": 0, "malformed": 0, "rows_out": {"out": 2}, "restarts": 4}
    sometimes = ("behind", "watermark_ms", "batch_s", "lag_s", "checkpoint_ms", "state_bytes")
    unknown = dict.fromkeys(sometimes)
    known = dict(zip(sometimes, (0, 5_000, 0.25, 1.5, 6_000, 42), strict=True))
    jobs = [
        {"name": "a", "state": "running", "restarts": 1, "progress": counts | unknown},
        {"name": "b", "state": "running", "restarts": 0, "progress": counts | known},
        {"name": "c", "state": "queued", "restarts": 0, "progress": None},
    ]
    add_jobs(page, jobs, now_ms=7_000)
    lines = [line for line in page.text().splitlines() if not line.startswith("#")]
    told = {
        job: {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if f'job="{job}"' in line}
        for job in "abc"
    }
    assert "millstream_job_lag_messages" not in told["a"]
    assert "millstream_job_watermark_lag_seconds" not in told["a"]
    assert told["b"]["millstream_job_lag_messages"] == "0"
    assert told["b"]["millstream_job_watermark_lag_seconds"] == "2.0"
    assert told["b"]["millstream_job_rows_out_total"] == "2"
    assert told["b"]["millstream_job_lag_seconds"] == "1.5"
    assert told["b"]["millstream_job_checkpoint_timestamp_seconds"] == "6.0"
    assert told["b"]["millstream_job_state_bytes"] == "42"
    assert told["b"]["millstream_job_query_restarts_total"] == "4"
    assert told["b"].keys() - told["a"].keys() == {
        "millstream_job_lag_messages",
        "millstream_job_lag_seconds",
        "millstream_job_watermark_seconds",
        "millstream_job_watermark_lag_seconds",
        "millstream_job_batch_seconds",
        "millstream_job_checkpoint_timestamp_seconds",
        "millstream_job_state_bytes",
    }
    assert told["c"] == {"millstream_job_state": "1", "millstream_job_restarts_total": "0"}
