"""Connectors of other packages are found by name, and one that is broken harms no other."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from example_package import installed
from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.registry import CONNECTORS, GROUP, KnownConnectors
from millstream.streams.errors import SqlError
from millstream.streams.plan.tables import Table
from millstream.streams.sql.session.compiler import SqlSession

TABLE = "CREATE TABLE notes (id BIGINT, word STRING) WITH ('connector' = 'folder', {0})"


def made(options: str) -> Table:
    session = SqlSession()
    session.compile(TABLE.format(options))
    return session.catalog.tables[session.catalog.full_name(("notes",))].table


def test_an_installed_connector_is_known_to_sql_with_its_options(tmp_path: Path) -> None:
    with installed(tmp_path):
        assert made("'path' = '/x'").options == {"connector": "folder", "path": "/x"}
        assert "folder_connector.lines" not in sys.modules
        with pytest.raises(SqlError, match=r"no option 'paht'.*Did you mean \"path\""):
            made("'paht' = '/x'")
        with pytest.raises(SqlError, match="needs the option 'path'"):
            made("'lines-per-task' = '5'")
        assert list(CONNECTORS)[-1] == "folder"


def test_a_table_of_our_own_connectors_asks_for_no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> list[EntryPoint]:
        raise AssertionError("the installed packages were looked through")

    monkeypatch.setattr(CONNECTORS, "_entries", asked)
    SqlSession().compile("CREATE TABLE t (a INT) WITH ('connector' = 'print')")
    with pytest.raises(AssertionError, match="looked through"):
        SqlSession().compile("CREATE TABLE t (a INT) WITH ('connector' = 'prin')")


def test_a_broken_one_is_named_and_the_others_work(tmp_path: Path) -> None:
    (tmp_path / "torn.py").write_text("raise RuntimeError('no licence')\n")
    torn = {"name": "torn-package", "version": "1", "entry-points": {GROUP: {"torn": "torn:ROW"}}}
    with installed(tmp_path / "a"), installed(tmp_path / "b", torn, modules=tmp_path):
        assert made("'path' = '/x'").connector == "folder"
        with pytest.raises(SqlError) as caught:
            SqlSession().compile("CREATE TABLE t (a INT) WITH ('connector' = 'torn')")
        assert "'torn' of the package torn-package cannot be used: RuntimeError: no licence" in caught.value.message
        assert "torn" not in list(CONNECTORS)
        assert "folder" in list(CONNECTORS)


ROWS = {
    "good": Connector("good", (), reads=True, source="m:S"),
    "renamed": Connector("other", (), reads=True, source="m:S"),
    "lying": Connector("lying", (), reads=True),
    "number": 7,
}


class Entry(EntryPoint):
    """An entry point whose package is this test."""

    def load(self) -> object:
        return ROWS[self.value]


@pytest.mark.parametrize(
    ("name", "said"),
    [("renamed", "calls itself 'other'"), ("lying", "where it names a source"), ("number", "is int, not Connector")],
)
def test_what_is_no_fitting_declaration_is_refused_with_the_reason(name: str, said: str) -> None:
    known = KnownConnectors((), lambda: [Entry(name, name, GROUP), Entry("good", "good", GROUP)])
    assert name not in known
    assert said in str(known.problem(name))
    assert list(known) == ["good"]
    assert known.problem("good") is None


def test_a_package_takes_no_name_of_ours() -> None:
    own = Connector("good", (), writes=True, sink="ours:Sink")
    assert KnownConnectors((own,), lambda: [Entry("good", "good", GROUP)])["good"] is own
