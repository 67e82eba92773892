"""A query whose words are out of order is refused at a place, or bound; nothing else is ever raised."""

from __future__ import annotations

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from shop import SHOP

from example_counts import scaled
from millstream.streams.errors import SqlError
from millstream.streams.sql.session.compiler import SqlSession

QUERIES = (
    "SELECT o.id, y.method FROM orders o LEFT JOIN payments y ON o.id = y.order_id AND y.method = 'card' WHERE y.id IS NULL",
    "SELECT o.ts FROM orders o FULL JOIN payments y ON o.id = y.order_id AND o.ts BETWEEN y.paid - INTERVAL '1' HOUR AND y.paid",
    "SELECT item, GROUPING_ID(item, id) AS g, SUM(amount) AS s FROM orders GROUP BY GROUPING SETS ((item, customer), ()),"
    " CUBE (id) HAVING COUNT(*) > 1",
    "SELECT SUM(amount) OVER w AS s, LAG(price, 1) OVER (w2 ORDER BY ts) AS l FROM orders WINDOW w AS (PARTITION BY item"
    " ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), w2 AS (PARTITION BY customer)",
    "SELECT id FROM orders WHERE (item, customer) IN (SELECT method, MAX(order_id) FROM payments GROUP BY method) AND NOT"
    " EXISTS (SELECT 1 FROM rates r WHERE r.item = orders.item) AND price > (SELECT AVG(price) FROM orders)",
    "WITH big AS (SELECT id, item FROM orders), same (a, b) AS (SELECT * FROM big) SELECT a FROM same UNION ALL SELECT order_id"
    " FROM payments INTERSECT SELECT 3 ORDER BY a DESC LIMIT 3 OFFSET 1",
    "SELECT a, n FROM orders LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (a, n) ON TRUE, LATERAL TABLE(SPLIT(item, ' ')) AS u (w)",
    "SELECT /*+ STATE_TTL('o'='1d') */ o.id FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.item = r.item",
    "SELECT * FROM orders NATURAL JOIN (SELECT id, method FROM payments) JOIN rates USING (item)",
    "SELECT MAX(n) AS most, e FROM (SELECT item, COUNT(*) AS n, window_start AS s, window_end AS e FROM TABLE(SESSION(TABLE"
    " orders PARTITION BY item, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY item, window_start, window_end) GROUP BY s, e",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) rn FROM orders) WHERE rn BETWEEN 2 AND 5",
)  # fmt: skip
_WORDS = [re.findall(r"'[^']*'|`[^`]*`|\w+|\s+|[^\w\s]", query) for query in QUERIES]
_ALL = [word for words in _WORDS for word in words]


def session() -> SqlSession:
    opened = SqlSession()
    opened.compile(SHOP)
    return opened


_SESSION = session()


def test_in_order_they_are_bound() -> None:
    for query in QUERIES:
        _SESSION.compile(query)


@settings(max_examples=scaled(300), deadline=None)
@given(st.integers(0, 2**32))
def test_out_of_order_they_raise_an_sql_error_with_a_place_or_nothing(seed: int) -> None:
    chance = random.Random(seed)
    words = list(chance.choice(_WORDS))
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(words))
        match chance.randrange(4):
            case 0:
                words[place] = ""
            case 1:
                words.insert(place, words[place])
            case 2:
                words[place] = chance.choice(_ALL)
            case _:
                words[place], words[place - 1] = words[place - 1], words[place]
    error = _error_of(f"EXPLAIN {''.join(words)}")
    assert error is None or error.position is not None


def _error_of(script: str) -> SqlError | None:
    try:
        _SESSION.compile(script)
    except SqlError as error:
        return error
    return None
