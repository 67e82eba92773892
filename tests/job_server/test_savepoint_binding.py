"""Plans of a job and the parts of the savepoint that they begin from."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_job_server import SCRIPT

from millstream.job_server.binding import SAVEPOINT_SETTING, check_parts, give_parts, plans_of_script
from millstream.job_server.errors import JobServerError
from millstream.streams.plan.nodes import JobPlan

INSERT = "INSERT INTO shown SELECT n FROM numbers;"


def plans(count: int, path: Path | str) -> list[JobPlan]:
    settings = {SAVEPOINT_SETTING: str(path)} if path else {}
    return plans_of_script(SCRIPT + INSERT * (count - 1), settings, "127.0.0.1:1")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A savepoint of two plans, as far as its places tell."""
    for number in range(2):
        (tmp_path / "saved" / str(number)).mkdir(parents=True)
        (tmp_path / "saved" / str(number) / "savepoint.json").write_text("{}")
    return tmp_path / "saved"


def paths(given: list[JobPlan]) -> list[str]:
    return [plan.settings.get(SAVEPOINT_SETTING, "") for plan in given]


def test_each_plan_begins_from_its_part_and_one_that_came_later_from_none(saved: Path) -> None:
    assert paths(give_parts(plans(3, saved))) == [str(saved / "0"), str(saved / "1"), ""]


def test_a_savepoint_of_one_plan_and_one_that_is_not_there_stay_as_they_are(saved: Path) -> None:
    for path in (saved / "1", saved / "nothing"):
        assert paths(give_parts(plans(1, path))) == [str(path)]
        check_parts(plans(2, path))
    assert paths(give_parts(plans(2, ""))) == ["", ""]


@pytest.mark.parametrize("count", [1, 3])
def test_a_job_does_not_begin_from_a_savepoint_of_more_or_fewer_plans(saved: Path, count: int) -> None:
    check_parts(plans(2, saved))
    with pytest.raises(JobServerError, match=f"of a job with 2 INSERTs, and the job has {count}") as refused:
        check_parts(plans(count, saved))
    assert refused.value.name == "SAVEPOINT_REFUSED"
