"""The process that copies: it answers, ends when there is nothing to do, and is started again when it was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from millstream.model.errors import MillstreamError
from millstream.server.columns.column_process import ColumnProcess
from millstream.server.columns.orders import WorkerOptions

pytestmark = pytest.mark.process


@pytest.fixture
def process(tmp_path: Path) -> ColumnProcess:
    return ColumnProcess(WorkerOptions((tmp_path / "store").as_uri()))


async def test_it_is_started_again_after_it_was_killed(process: ColumnProcess) -> None:
    await process.check("id BIGINT", "json", "")
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    with pytest.raises(MillstreamError, match="The process that copies ended") as failed:
        await process.check("id BIGINT", "json", "")
    assert failed.value.name == "COLUMN_COPY_FAILED"
    await process.check("id BIGINT", "json", "")
    assert process.pid != first
    await process.close()
    assert process.pid is None


async def test_a_refusal_has_its_name_and_the_process_lives_on(process: ColumnProcess) -> None:
    with pytest.raises(MillstreamError, match="two columns are called 'id'") as refused:
        await process.check("id BIGINT, ID STRING", "json", "")
    assert refused.value.name == "COLUMNS_REFUSED"
    pid = process.pid
    await process.check("id BIGINT, name STRING", "json", "id BIGINT")
    assert process.pid == pid
    await process.close()


async def test_it_ends_when_there_is_nothing_to_do_and_starts_when_there_is(tmp_path: Path) -> None:
    process = ColumnProcess(WorkerOptions((tmp_path / "store").as_uri()), idle_s=0.0)
    await process.check("id BIGINT", "json", "")
    first = process._process
    assert first is not None
    assert await first.wait() == 0
    await process.check("id BIGINT", "json", "")
    await process.close()
