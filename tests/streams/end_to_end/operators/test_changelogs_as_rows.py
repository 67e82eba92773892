"""TO_CHANGELOG and FROM_CHANGELOG on Spark: changes read from rows, counted, and told as rows."""

from __future__ import annotations

import re

import pytest

from millstream.streams.errors import JobError
from millstream.testing import StreamTest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCRIPT = """
CREATE TABLE tickets (code STRING, id INT, state STRING)
WITH ('connector' = 'rocketmq', 'topic' = 'tickets', 'format' = 'json');
CREATE TABLE told (kind STRING, state STRING, n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'told');
CREATE VIEW counts AS SELECT state, COUNT(*) AS n
FROM FROM_CHANGELOG(
  input => TABLE tickets PARTITION BY id,
  op => DESCRIPTOR(code),
  op_mapping => MAP['c, r', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE'],
  error_handling => 'SKIP'
) GROUP BY state;
INSERT INTO told SELECT * FROM TO_CHANGELOG(
  input => TABLE counts,
  op => DESCRIPTOR(kind),
  op_mapping => MAP['INSERT', 'new', 'UPDATE_BEFORE', 'was', 'UPDATE_AFTER', 'is', 'DELETE', 'gone']
);
"""


def ticket(code: str | None, number: int, state: str) -> dict[str, object]:
    return {"code": code, "id": number, "state": state}


def test_changes_are_read_from_rows_and_told_as_rows() -> None:
    test = StreamTest(SCRIPT, limit_s=600.0)
    test.feed("tickets", ticket("c", 1, "open"), ticket("r", 2, "open")).cut()
    test.feed("tickets", ticket("u", 1, "shut"), ticket("?", 3, "open"), ticket(None, 4, "open")).cut()
    test.feed("tickets", ticket("d", 1, "shut"))
    assert test.run().table() == {
        ("new", "open", 2): 1,
        ("was", "open", 2): 1,
        ("is", "open", 1): 1,
        ("new", "shut", 1): 1,
        ("gone", "shut", 1): 1,
    }


@pytest.mark.parametrize(("code", "shown"), [("?", "'?'"), (None, "NULL")])
def test_a_row_with_another_code_ends_the_job_and_is_named(code: str | None, shown: str) -> None:
    test = StreamTest(SCRIPT.replace("'SKIP'", "'FAIL'"), limit_s=600.0)
    test.feed("tickets", ticket("c", 1, "open")).cut()
    test.feed("tickets", ticket(code, 2, "open"))
    with pytest.raises(JobError, match=f"the code {re.escape(shown)}.*knows 'c', 'r', 'u', 'd'"):
        test.run()
