"""The SQL that the documentation shows can be read and bound as it stands."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from shop import SHOP

from millstream.streams.sql.session.compiler import SqlSession

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TABLES = """
CREATE TABLE events (
  host STRING, score DOUBLE, bytes BIGINT, line STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'events');
CREATE TABLE visits (
  page STRING, ms INT, at TIMESTAMP_LTZ(3) METADATA FROM 'store-timestamp' VIRTUAL,
  WATERMARK FOR at AS at - INTERVAL '1' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'visits');
CREATE TABLE flows (host STRING, bytes BIGINT, seconds DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 'flows');
CREATE TABLE items (item STRING, name STRING) WITH ('connector' = 'filesystem', 'path' = '/items', 'format' = 'csv');
"""


def pages_with_sql() -> list[str]:
    return sorted(page.name for page in DOCS.glob("*.md") if BLOCK.search(page.read_text()))


@pytest.fixture
def my_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that the page about functions of one's own writes."""
    module = ModuleType("my_rules")
    blocks = PYTHON_BLOCK.findall((DOCS / "user-functions.md").read_text())
    exec(blocks[0], module.__dict__)
    monkeypatch.setitem(sys.modules, "my_rules", module)


@pytest.mark.parametrize("page", pages_with_sql())
@pytest.mark.usefixtures("my_rules")
def test_every_example_of_the_page_is_legal(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SqlSession()
    session.compile(SHOP + TABLES)
    for block in BLOCK.findall((DOCS / page).read_text()):
        for secret in re.findall(r"\$\{env:(\w+)\}", block):
            monkeypatch.setenv(secret, "a secret")
        assert session.compile(block)


def test_the_pages_about_sql_have_examples() -> None:
    assert {"sql.md", "queries.md", "sql-shell.md"} <= set(pages_with_sql())
