"""Jobs that earlier versions of the code have stopped half-way go on from their checkpoints as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kept_data import EXPECTED_FILE, KEPT_OPTIONS, kept_archives, unpack
from kept_jobs import EVENTS, Rows, bodies_out, run_to_end, send_events
from millstream.client.blocking import BlockingClient
from millstream.streams.dimension.directory import DIRECTORY_VARIABLE
from servers import running_servers_in_thread

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

READ = EVENTS * 2 // 3
"""Events that the jobs have read, or have in a micro-batch that is to be repeated."""


@dataclass(frozen=True)
class Kept:
    """What an archive holds, with its broker, which has the rest of the events."""

    directory: Path
    nameserver: str
    after: dict[str, Rows]
    out: list[str]

    def go_on(self, spark: SparkSession, job: str) -> tuple[Rows, Rows]:
        """What a job shows from its checkpoint on, and what it is to show."""
        wanted = {sink: [(row, n) for row, n in rows] for sink, rows in self.after[job].items()}
        return run_to_end(spark, self.directory, job, self.nameserver, "checkpoints"), wanted


@pytest.fixture(scope="module", params=kept_archives("jobs"), ids=lambda archive: archive.name.partition(".")[0])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    directory = unpack(request.param, tmp_path_factory.mktemp("kept"))
    expected = json.loads((directory / EXPECTED_FILE).read_text())
    with pytest.MonkeyPatch.context() as patch:
        # The paths of files and of a model's store belong to a query: those of these jobs follow the working directory.
        patch.chdir(directory)
        patch.setenv(DIRECTORY_VARIABLE, str(directory / "dimensions"))
        with running_servers_in_thread(directory / "data", options=KEPT_OPTIONS) as servers:
            with BlockingClient(servers.nameserver) as client:
                send_events(client, range(READ, EVENTS))
            yield Kept(directory, servers.nameserver, expected["after"], expected["out"])


def test_windows_counts_overs_and_patterns_go_on_and_a_topic_gets_each_row_once(
    spark: SparkSession, kept: Kept
) -> None:
    found, wanted = kept.go_on(spark, "state")
    assert found == wanted
    with BlockingClient(kept.nameserver) as client:
        assert bodies_out(client) == kept.out


def test_a_join_finds_partners_that_came_before(spark: SparkSession, kept: Kept) -> None:
    found, wanted = kept.go_on(spark, "joined")
    assert found == wanted


@pytest.mark.parametrize("job", ["looked_up", "hits"])
def test_a_micro_batch_is_repeated_by_the_version_that_it_began_with(spark: SparkSession, kept: Kept, job: str) -> None:
    found, wanted = kept.go_on(spark, job)
    assert found == wanted


def test_a_micro_batch_is_repeated_by_the_model_that_it_began_with(spark: SparkSession, kept: Kept) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: millstream[learning]")
    found, wanted = kept.go_on(spark, "scored")
    assert found == wanted
