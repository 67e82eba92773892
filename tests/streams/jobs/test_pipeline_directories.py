"""The query of a job that reads other tables than before goes on from its own checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import JobIdentity, write_identity
from millstream.streams.jobs.pipeline_directories import NO_TABLES, group_by_tables, pipeline_directories
from millstream.streams.jobs.state_fit import StateRecord

NOTHING = StateRecord()


def has_run(job: Path, *tables: str, state: StateRecord | None = NOTHING) -> Path:
    directory = job / "+".join(tables)
    write_identity(directory, JobIdentity("id", "plan", {name: {} for name in tables}, state=state))
    return directory


def test_a_fresh_query_has_a_directory_of_its_tables(tmp_path: Path) -> None:
    assert pipeline_directories(tmp_path, [["t", "u"], []]) == [tmp_path / "t+u", tmp_path / NO_TABLES]


def test_a_query_that_reads_one_table_more_or_less_goes_on_where_it_was(tmp_path: Path) -> None:
    place = has_run(tmp_path, "t", "u")
    assert pipeline_directories(tmp_path, [["t", "u", "v"]]) == [place]
    assert pipeline_directories(tmp_path, [["u"], ["x"]]) == [place, tmp_path / "x"]


def test_a_checkpoint_without_a_table_of_state_is_nobodys(tmp_path: Path) -> None:
    has_run(tmp_path, "t", "u", state=None)
    assert pipeline_directories(tmp_path, [["t"]]) == [tmp_path / "t"]


def test_queries_that_became_one_or_two_are_refused(tmp_path: Path) -> None:
    has_run(tmp_path, "t")
    has_run(tmp_path, "u")
    with pytest.raises(JobError, match="were read by 2 queries"):
        pipeline_directories(tmp_path, [["t", "u"]])
    other = tmp_path / "other"
    has_run(other, "t", "u")
    with pytest.raises(JobError, match="were read by one query of the job, and are read by several now"):
        pipeline_directories(other, [["t"], ["u"]])


def test_items_that_read_any_table_together_are_one_group_in_order() -> None:
    items = [("a", "t"), ("b", "u"), ("c", "v"), ("d", "tv")]
    assert group_by_tables(items, lambda item: set(item[1])) == [[items[0], items[2], items[3]], [items[1]]]
