"""Where a database is: what URLs say, what TLS they ask for, and what of them is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.connectors.jdbc.databases.address import DatabaseAddress
from millstream.streams.connectors.jdbc.databases.database import open_database, quote_name, table_parts
from millstream.streams.connectors.jdbc.databases.failure import without_secret
from millstream.streams.errors import JobError
from millstream.streams.secrets import shown_url
from millstream.streams.sql.session.compiler import SqlSession


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("jdbc:postgresql://h/d", ("postgresql", "h", 5432, "d", "", "")),
        ("jdbc:postgresql://h:6000/d?user=u&password=p%26q", ("postgresql", "h", 6000, "d", "u", "p&q")),
        ("postgres://u:p%40@h/d", ("postgresql", "h", 5432, "d", "u", "p@")),
        ("jdbc:mariadb://h/d", ("mysql", "h", 3306, "d", "", "")),
        ("jdbc:sqlite:/var/x.db", ("sqlite", "", 0, "/var/x.db", "", "")),
        ("sqlite:///var/x.db", ("sqlite", "", 0, "/var/x.db", "", "")),
    ],
)
def test_a_url_tells_the_place(url: str, wanted: tuple[object, ...]) -> None:
    found = DatabaseAddress.of(url)
    assert (found.kind, found.host, found.port, found.name, found.user, found.password) == wanted


def test_what_stands_beside_a_url_counts_before_what_is_in_it() -> None:
    found = DatabaseAddress.of("jdbc:postgresql://h/d?user=u&password=p", "other", "word")
    assert (found.user, found.password) == ("other", "word")


def test_an_address_shows_no_password() -> None:
    found = DatabaseAddress.of("jdbc:postgresql://u:hush-4711@h/d?password=hush-4711&x=hush-4711")
    assert "hush-4711" not in f"{found} {found!r}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h/d?user=u&password=p&x=1", "jdbc:postgresql://h/d?user=u&password=***&x=1"),
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("jdbc:sqlite:/var/x.db", "jdbc:sqlite:/var/x.db"),
        ("h:9876", "h:9876"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_no_statement_shows_the_password_of_a_url() -> None:
    made = "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://u:hush@h/d', 'table-name' = 't');"
    assert "hush" not in str(SqlSession().compile(made + "SHOW CREATE TABLE t")[-1])


@pytest.mark.parametrize(
    ("text", "secret", "shown"),
    [
        ("no login for u:p4ss\n at h", "p4ss", "no login for u:*** at h"),
        ("x p%40ss y p@ss", "p@ss", "x *** y ***"),
        ("cannot connect", "a", "cannot connect"),
        ("nothing", "", "nothing"),
    ],
)
def test_words_of_drivers_are_one_line_without_the_password(text: str, secret: str, shown: str) -> None:
    assert without_secret(text, secret) == shown


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("items", ("items",)),
        ("shop.items", ("shop", "items")),
        ('"shop.v2"."my ""items"', ("shop.v2", 'my "items')),
        ("`a.b`", ("a.b",)),
        ('my "items', ('my "items',)),
    ],
)
def test_names_of_tables_have_parts(text: str, parts: tuple[str, ...]) -> None:
    assert table_parts(text) == parts


def test_names_are_quoted_as_the_driver_wants_them() -> None:
    assert quote_name(('a"b', "100%"), '"', "?") == '"a""b"."100%"'
    assert quote_name(("a`b", "100%"), "`", "%s") == "`a``b`.`100%%`"


@pytest.mark.parametrize(
    "url",
    ["jdbc:postgresql://h/d?sslmod=require", "jdbc:mysql://h/d?sslMode=ALWAYS", "jdbc:mysql://h/d?sslcert=x"],
)
def test_a_wrong_word_about_tls_is_refused(url: str) -> None:
    with pytest.raises(JobError, match="not known") as raised:
        open_database({"url": url})
    assert raised.value.name == "DATABASE_URL"


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="A file of TLS"):
        open_database({"url": f"jdbc:mysql://h/d?sslMode=VERIFY_CA&ssl_ca={tmp_path}/none.pem"})


def test_options_of_drivers_of_java_are_passed_over() -> None:
    open_database({"url": "jdbc:mysql://h/d?rewriteBatchedStatements=true&useUnicode=true&characterEncoding=utf8"})
    open_database({"url": "jdbc:postgresql://h/d?reWriteBatchedInserts=true&sslmode=require"})
