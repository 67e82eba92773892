"""Files of INSERTs as rules."""

from __future__ import annotations

from millstream.streams.rule_formats.sql_form import read_sql_rules
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.reference import evaluate, field_reader

TABLES = """-- what the rules read
CREATE TABLE events (host STRING, image STRING, port INT, low AS LOWER(image), queue INT METADATA FROM 'queue-id' VIRTUAL)
  WITH ('connector' = 'rocketmq', 'topic' = 'events', 'format' = 'json');
CREATE TABLE alerts (rule STRING, level STRING, host STRING)
  WITH ('connector' = 'rocketmq', 'topic' = 'alerts', 'format' = 'json');
"""


def test_each_insert_is_a_rule_named_by_its_constant() -> None:
    found = read_sql_rules(
        f"{TABLES} INSERT INTO alerts SELECT 'cmd', 'high', host FROM events WHERE low LIKE '%cmd%';\n"
        "INSERT INTO alerts SELECT rule, level, h FROM (SELECT 'port' AS rule, 'odd' AS level, host AS h, port FROM events) WHERE port = 1",
        "a/own.sql",
    )
    assert found.refused == ()
    first, second = found.rules
    assert (first.id, first.kind, first.level, first.shows) == ("cmd", "sql", "high", ("host",))
    assert first.text.startswith("INSERT INTO alerts SELECT 'cmd'")
    assert evaluate(first.condition, {"image": "C:\\CMD.exe"}.get) is True
    assert found.places == {"cmd": ("a/own.sql", 6), "port": ("a/own.sql", 7)}
    assert (second.id, second.level, second.condition) == (
        "port",
        "medium",
        Predicate("port", Op.IN, (1,), whole_lists=True),
    )


def test_the_inserts_of_a_statement_set_are_rules_too() -> None:
    sets = "EXECUTE STATEMENT SET BEGIN INSERT INTO alerts SELECT 'a', 'low', host FROM events WHERE CASE WHEN port = 1 THEN TRUE END; INSERT INTO alerts SELECT 'b', 'low', host FROM events; END;"
    assert [rule.id for rule in read_sql_rules(TABLES + sets, "x.sql").rules] == ["a", "b"]


def test_fields_of_rows_are_found_where_events_hold_them() -> None:
    tables = TABLES.replace("host STRING, image", "place ROW<city STRING>, host STRING, image")
    text = f"{tables} INSERT INTO alerts SELECT 'a', 'low', host FROM events WHERE place.city = 'x'"
    found = read_sql_rules(text, "x.sql")
    assert found.paths == {"place->city": (("place", "city"),)}
    places: list[tuple[object, bool | None]] = [
        ({"city": "x"}, True),
        ([{"city": "x"}], None),
        ({"city": ["x"]}, False),
    ]
    for place, held in places:
        assert evaluate(found.rules[0].condition, field_reader({"place": place}, found.paths)) is held


def test_a_rule_without_a_name_is_called_by_its_file_and_number() -> None:
    text = f"{TABLES} INSERT INTO alerts SELECT image, 'low', host FROM events WHERE port = 1"
    (rule,) = read_sql_rules(text, "rules/net.sql").rules
    assert (rule.id, rule.shows) == ("net-1", ("image", "host"))


def test_what_is_no_rule_is_refused_with_its_place_and_stops_no_other() -> None:
    text = (
        f"{TABLES}INSERT INTO alerts SELECT 'a', 'low', host FROM events WHERE nothing = 1;\n"
        "INSERT INTO alerts SELECT 'b', 'low', host FROM events WHERE CHAR_LENGTH(host) > 3;\n"
        "  INSERT INTO alerts SELECT 'c', 'low', UPPER(host) FROM events;\n"
        "INSERT INTO alerts SELECT 'd', 'low', host FROM events WHERE queue = 1;\n"
        "INSERT INTO alerts SELECT 'e', 'low', host FROM events UNION ALL SELECT 'e', 'low', image FROM events;\n"
        "INSERT INTO alerts SELECT 'f', 'low', host FROM events WHERE port = 1;\n"
    )
    found = read_sql_rules(text, "x.sql")
    assert [rule.id for rule in found.rules] == ["f"]
    assert [(refusal.line, refusal.column) for refusal in found.refused] == [(6, 62), (7, 1), (8, 3), (9, 1), (10, 1)]
    reasons = [refusal.reason for refusal in found.refused]
    assert "nothing" in reasons[0]
    assert "CHAR_LENGTH" in reasons[1]
    assert "UPPER" in reasons[2]
    assert "queue" in reasons[3]
    assert "job of its own" in reasons[4]


def test_a_file_that_is_no_sql_is_refused_as_a_whole() -> None:
    found = read_sql_rules("CREATE TABLE 'open", "x.sql")
    assert found.rules == ()
    assert found.refused[0].line == 1
