"""Queries of the shapes that an auction benchmark has: each is bound to the operators that it needs, and no others."""

from __future__ import annotations

import pytest
from compiling import planned

TABLES = """
CREATE TABLE happenings (
  kind INT,
  person ROW<id BIGINT, name STRING, city STRING, state STRING, `moment` TIMESTAMP(3), extra STRING>,
  auction ROW<id BIGINT, title STRING, reserve BIGINT, `moment` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `moment` TIMESTAMP(3), extra STRING>,
  `moment` AS CASE WHEN kind = 0 THEN person.`moment` WHEN kind = 1 THEN auction.`moment` ELSE bid.`moment` END,
  WATERMARK FOR `moment` AS `moment` - INTERVAL '4' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'auctions');
CREATE VIEW person AS SELECT person.id, person.name, person.city, person.state, `moment` FROM happenings WHERE kind = 0;
CREATE VIEW auction AS SELECT auction.id, auction.title, auction.reserve, `moment`, auction.expires, auction.seller,
  auction.category FROM happenings WHERE kind = 1;
CREATE VIEW bid AS SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `moment`, bid.extra FROM happenings
  WHERE kind = 2;
CREATE TABLE side (`key` BIGINT, `value` STRING) WITH ('connector' = 'filesystem', 'path' = '/side');
"""

WON = "FROM auction A, bid B WHERE A.id = B.auction AND B.`moment` BETWEEN A.`moment` AND A.expires"
HOPS = "TABLE(HOP(TABLE bid, DESCRIPTOR(`moment`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
TENS = "TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(`moment`), INTERVAL '10' SECOND))"
JOINED_WON = "Join INNER keys=[id = auction] condition=BETWEEN(moment0, moment, expires) [append, own operator]"

QUERIES: dict[str, tuple[str, list[str]]] = {
    "q0": ("SELECT auction, bidder, price, `moment`, extra FROM bid", []),
    "q1": ("SELECT auction, bidder, 0.908 * price AS price, `moment` FROM bid", []),
    "q2": ("SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0", []),
    "q3": (
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id"
        " WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
        ["Join INNER keys=[seller = id0] [append, own operator]"],
    ),
    "q4": (
        f"SELECT Q.category, AVG(Q.final) FROM (SELECT MAX(B.price) AS final, A.category {WON} GROUP BY A.id, A.category) Q"
        " GROUP BY Q.category",
        [
            "Aggregate keys=[category] aggregates=[AVG(final) AS aggregate_0] [retract, own operator]",
            "Aggregate keys=[id, category] aggregates=[MAX(price) AS aggregate_0] [retract, own operator]",
            JOINED_WON,
        ],
    ),
    "q5": (
        "SELECT Each.auction, Each.num FROM (SELECT auction, COUNT(*) AS num, window_start AS s, window_end AS e"
        f" FROM {HOPS} GROUP BY auction, window_start, window_end) AS Each JOIN (SELECT MAX(Counted.num) AS most, Counted.s,"
        f" Counted.e FROM (SELECT COUNT(*) AS num, window_start AS s, window_end AS e FROM {HOPS} GROUP BY auction,"
        " window_start, window_end) AS Counted GROUP BY Counted.s, Counted.e) AS Top ON Each.s = Top.s AND Each.e = Top.e"
        " AND Each.num >= Top.most",
        [
            "Join INNER keys=[s = s0, e = e0] windows=[e = e0] condition=>=(num, most) [append, own operator]",
            "WindowAggregate HOP(moment, 2000 ms, 10000 ms) keys=[auction] aggregates=[COUNT(*) AS aggregate_0] [append, own operator]",
            "WindowAggregate ATTACHED(s, e) keys=[] aggregates=[MAX(num) AS aggregate_0] [append, own operator]",
            "WindowAggregate HOP(moment, 2000 ms, 10000 ms) keys=[auction] aggregates=[COUNT(*) AS aggregate_0] [append, own operator]",
        ],
    ),
    "q6": (
        "SELECT Q.seller, AVG(Q.final) OVER (PARTITION BY Q.seller ORDER BY Q.`moment` ROWS BETWEEN 10 PRECEDING AND"
        " CURRENT ROW) FROM (SELECT A.seller, B.price AS final, B.`moment`, ROW_NUMBER() OVER (PARTITION BY A.id, A.seller"
        f" ORDER BY B.price DESC) AS place {WON}) AS Q WHERE Q.place <= 1",
        [
            "Over partition=[seller] order=[moment ASC] frame=[rows, 10 rows before] calls=[AVG(final) AS over_0] [retract, own operator]",
            "Rank ROW_NUMBER 1 partition=[id, seller] order=[price DESC] [retract, own operator]",
            JOINED_WON,
        ],
    ),
    "q7": (
        f"SELECT B.auction, B.price, B.bidder, B.`moment` FROM bid B JOIN (SELECT MAX(price) AS most, window_end AS `moment`"
        f" FROM {TENS.format('bid')} GROUP BY window_start, window_end) B1 ON B.price = B1.most"
        " WHERE B.`moment` BETWEEN B1.`moment` - INTERVAL '10' SECOND AND B1.`moment`",
        [
            "Join INNER keys=[price = most] bounds=[moment from window_time + -9999 ms to window_time + 1 ms] [append, own operator]",
            "WindowAggregate TUMBLE(moment, 10000 ms) keys=[] aggregates=[MAX(price) AS aggregate_0] [append, own operator]",
        ],
    ),
    "q8": (
        f"SELECT P.id, P.name, P.s FROM (SELECT id, name, window_start AS s, window_end AS e FROM {TENS.format('person')}"
        " GROUP BY id, name, window_start, window_end) P JOIN (SELECT seller, window_start AS s, window_end AS e FROM"
        f" {TENS.format('auction')} GROUP BY seller, window_start, window_end) A ON P.id = A.seller AND P.s = A.s AND P.e = A.e",
        [
            "Join INNER keys=[id = seller, s = s0, e = e0] windows=[e = e0] [append, own operator]",
            "WindowAggregate TUMBLE(moment, 10000 ms) keys=[id, name] aggregates=[] [append, own operator]",
            "WindowAggregate TUMBLE(moment, 10000 ms) keys=[seller] aggregates=[] [append, own operator]",
        ],
    ),
    "q9": (
        "SELECT id, title, auction, bidder, price, at FROM (SELECT A.*, B.auction, B.bidder, B.price, B.`moment` AS at,"
        f" ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`moment` ASC) AS place {WON}) WHERE place <= 1",
        ["Rank ROW_NUMBER 1 partition=[id] order=[price DESC, moment0 ASC] [retract, own operator]", JOINED_WON],
    ),
    "q10": (
        "SELECT auction, bidder, DATE_FORMAT(`moment`, 'yyyy-MM-dd'), DATE_FORMAT(`moment`, 'HH:mm') FROM bid",
        [],
    ),
    "q11": (
        "SELECT B.bidder, COUNT(*) AS n, SESSION_START(B.`moment`, INTERVAL '10' SECOND) AS s, SESSION_END(B.`moment`,"
        " INTERVAL '10' SECOND) AS e FROM bid B GROUP BY B.bidder, SESSION(B.`moment`, INTERVAL '10' SECOND)",
        [
            "WindowAggregate SESSION(moment, 10000 ms PARTITION BY bidder) keys=[bidder] aggregates=[COUNT(*) AS aggregate_0] [append, own operator]"
        ],
    ),
    "q12": (
        "SELECT B.bidder, COUNT(*) AS n, TUMBLE_START(B.p, INTERVAL '10' SECOND) AS s FROM (SELECT *, PROCTIME() AS p FROM"
        " bid) B GROUP BY B.bidder, TUMBLE(B.p, INTERVAL '10' SECOND)",
        [
            "WindowAggregate TUMBLE(p, 10000 ms) keys=[bidder] aggregates=[COUNT(*) AS aggregate_0] [append, own operator]"
        ],
    ),
    "q13": (
        "SELECT B.auction, B.price, S.`value` FROM (SELECT *, PROCTIME() AS p FROM bid) B"
        " JOIN side FOR SYSTEM_TIME AS OF B.p AS S ON MOD(B.auction, 10000) = S.`key`",
        [],
    ),
    "q14": (
        "SELECT auction, 0.908 * price AS price, CASE WHEN HOUR(`moment`) >= 8 AND HOUR(`moment`) <= 18 THEN 'day' ELSE"
        " 'night' END AS part FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
        [],
    ),
    "q15": (
        "SELECT DATE_FORMAT(`moment`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS bids, COUNT(*) FILTER (WHERE price < 10000) AS r1,"
        " COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS b1 FROM bid"
        " GROUP BY DATE_FORMAT(`moment`, 'yyyy-MM-dd')",
        [
            "Aggregate keys=[DATE_FORMAT(moment, 'yyyy-MM-dd') AS key_0] aggregates=[COUNT(*) AS aggregate_0, COUNT(*) FILTER"
            " (WHERE <(price, 10000)) AS aggregate_1, COUNT(DISTINCT bidder) AS aggregate_2, COUNT(DISTINCT bidder) FILTER"
            " (WHERE <(price, 10000)) AS aggregate_3] [retract, own operator]"
        ],
    ),
    "q16": (
        "SELECT channel, DATE_FORMAT(`moment`, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(`moment`, 'HH:mm')) AS `minute`,"
        " COUNT(DISTINCT bidder) AS b FROM bid GROUP BY channel, DATE_FORMAT(`moment`, 'yyyy-MM-dd')",
        [
            "Aggregate keys=[channel, DATE_FORMAT(moment, 'yyyy-MM-dd') AS key_1] aggregates=[MAX(DATE_FORMAT(moment,"
            " 'HH:mm')) AS aggregate_0, COUNT(DISTINCT bidder) AS aggregate_1] [retract, own operator]"
        ],
    ),
    "q17": (
        "SELECT auction, DATE_FORMAT(`moment`, 'yyyy-MM-dd') AS `day`, MIN(price) AS least, AVG(price) AS mean FROM bid"
        " GROUP BY auction, DATE_FORMAT(`moment`, 'yyyy-MM-dd')",
        [
            "Aggregate keys=[auction, DATE_FORMAT(moment, 'yyyy-MM-dd') AS key_1] aggregates=[MIN(price) AS aggregate_0,"
            " AVG(price) AS aggregate_1] [retract, own operator]"
        ],
    ),
    "q18": (
        "SELECT auction, bidder, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `moment`"
        " DESC) AS place FROM bid) WHERE place <= 1",
        ["Rank ROW_NUMBER 1 partition=[bidder, auction] order=[moment DESC] [retract, own operator]"],
    ),
    "q19": (
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)"
        " WHERE place <= 10",
        ["Rank ROW_NUMBER 1..10 partition=[auction] order=[price DESC] AS over_0 [retract, own operator]"],
    ),
    "q20": (
        "SELECT auction, bidder, B.`moment`, title, A.`moment` AS made FROM bid AS B INNER JOIN auction AS A"
        " ON B.auction = A.id WHERE A.category = 10",
        ["Join INNER keys=[auction = id] [append, own operator]"],
    ),
    "q21": (
        "SELECT auction, CASE WHEN LOWER(channel) = 'apple' THEN '0' ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
        " END AS channel_id FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR LOWER(channel) IN"
        " ('apple', 'google')",
        [],
    ),
    "q22": ("SELECT auction, SPLIT_INDEX(url, '/', 3) AS a, SPLIT_INDEX(url, '/', 4) AS b FROM bid", []),
    "q23": (
        "SELECT B.bidder, P.name, A.title FROM bid AS B JOIN person AS P ON B.bidder = P.id JOIN auction AS A"
        " ON B.auction = A.id",
        [
            "Join INNER keys=[auction = id0] [append, own operator]",
            "Join INNER keys=[bidder = id] [append, own operator]",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_needs_these_operators_and_no_others(name: str) -> None:
    select, wanted = QUERIES[name]
    lines = [line.strip() for line in planned(TABLES, select)]
    assert [line for line in lines if "operator]" in line or "Spark's" in line] == wanted
    assert all(line.split()[0] in ("Project", "Filter", "Scan", "LookupJoin") for line in lines if line not in wanted)


def test_a_filter_on_the_kind_of_row_stands_right_above_each_scan() -> None:
    lines = planned(TABLES, QUERIES["q23"][0])
    scans = [place for place, line in enumerate(lines) if line.strip().startswith("Scan")]
    assert [lines[place - 1].strip() for place in scans] == [
        "Filter =(kind, 2)",
        "Filter =(kind, 0)",
        "Filter =(kind, 1)",
    ]
