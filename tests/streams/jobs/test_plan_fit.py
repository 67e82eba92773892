"""Whether a plan can go on from a job's checkpoints, told before anything starts."""

from __future__ import annotations

from pathlib import Path

from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint
from millstream.streams.jobs.outputs import outputs_of
from millstream.streams.jobs.plan_fit import fits, lines_of_job
from millstream.streams.jobs.plan_text import plan_lines
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.source.position import Position
from millstream.streams.sql.session.compiler import SqlSession

NAMESERVER = "127.0.0.1:1"
TABLES = """
CREATE TABLE a (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'a', 'format' = 'json', 'tag' = '{tag}');
CREATE TABLE b (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'b', 'format' = 'json');
CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print');
"""


def plan(*queries: str, tag: str = "*") -> JobPlan:
    inserts = "".join(f"INSERT INTO shown {query};" for query in queries)
    script = f"{TABLES.format(tag=tag)} EXECUTE STATEMENT SET BEGIN {inserts} END;"
    (found,) = [one for one in SqlSession().compile(script) if isinstance(one, JobPlan)]
    return found


def kept(directory: Path, of: JobPlan) -> None:
    """The checkpoint of a job that has begun."""
    named = [(one.sink.name, one.node) for one in outputs_of(of, JobSettings.of({}, NAMESERVER), None)]
    Checkpoint.open(directory / "a", fingerprint(named), lambda: {"a": Position()}, plan_lines(named))


def test_a_job_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    (found,) = fits(tmp_path / "none", plan("SELECT n FROM a"), NAMESERVER)
    assert (found.checkpoint, found.fits) == ("a", True)
    assert "begins anew" in found.words
    assert not (tmp_path / "none").exists()


def test_the_same_plan_goes_on_also_where_an_option_changes_that_does_not_matter(tmp_path: Path) -> None:
    kept(tmp_path, plan("SELECT n FROM a"))
    (found,) = fits(tmp_path, plan("SELECT n FROM a"), NAMESERVER)
    assert (found.fits, found.words) == (True, "The query goes on from its checkpoint.")


def test_another_plan_does_not_fit_and_the_first_difference_is_told(tmp_path: Path) -> None:
    kept(tmp_path, plan("SELECT n FROM a"))
    for other in (plan("SELECT n FROM a WHERE n > 1"), plan("SELECT n FROM a", tag="x")):
        (found,) = fits(tmp_path, other, NAMESERVER)
        assert not found.fits
        assert "The first difference" in found.words


def test_each_query_is_looked_at_and_one_that_is_left_over_is_told(tmp_path: Path) -> None:
    kept(tmp_path, plan("SELECT n FROM a"))
    both = fits(tmp_path, plan("SELECT n FROM a", "SELECT n FROM b"), NAMESERVER)
    assert [one.checkpoint for one in both] == ["a", "b"]
    other, left = fits(tmp_path, plan("SELECT n FROM b"), NAMESERVER)
    assert (other.checkpoint, left.checkpoint, left.fits) == ("b", "a", True)
    assert "left alone" in left.words


def test_the_lines_of_equal_plans_are_equal() -> None:
    one, other = (lines_of_job(plan("SELECT n FROM a"), NAMESERVER) for _ in range(2))
    assert one == other
    assert one != lines_of_job(plan("SELECT n + 1 AS n FROM a"), NAMESERVER)
