"""SQL expressions have Flink's values on Spark: one row, one job, all expressions at once."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

pytestmark = pytest.mark.spark

D = decimal.Decimal

GOLDENS: list[tuple[str, object]] = [
    ("small / 2", 2),
    ("TIME '10:00:00' + INTERVAL '30' MINUTE = TIME '10:30:00'", True),
    ("TIME '23:30:00' + INTERVAL '45' MINUTE = TIME '00:15:00'", True),
    ("TIME '00:10:00' - INTERVAL '20' MINUTE = TIME '23:50:00'", True),
    ("DATE '2026-01-01' + INTERVAL '2' DAY * 3 = DATE '2026-01-07'", True),
    ("TIMESTAMP '2026-01-01 12:00:00' - small * INTERVAL '1' HOUR = TIMESTAMP '2026-01-01 07:00:00'", True),
    ("(TIME '2:55:00', INTERVAL '1' HOUR) OVERLAPS (TIME '3:30:00', INTERVAL '2' HOUR)", True),
    ("(TIME '9:00:00', TIME '10:00:00') OVERLAPS (TIME '10:15:00', INTERVAL '3' HOUR)", False),
    ("(DATE '2026-02-01', DATE '2026-01-01') OVERLAPS (DATE '2026-01-31', DATE '2026-03-01')", True),
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("MOD(-7, 3)", -1),
    ("price / 4", D("2.6250000000000")),
    ("price * small", D("52.50")),
    ("score * 2", 5.0),
    ("nothing + 1", None),
    ("ABS(-3)", 3),
    ("CEIL(1.2)", D("2")),
    ("FLOOR(-1.2)", D("-2")),
    ("ROUND(1.256, 2)", D("1.260")),
    ("POWER(2, 10)", 1024.0),
    ("SQRT(9)", 3.0),
    ("SIGN(-5)", -1),
    ("GREATEST(1, 3, 2)", 3),
    ("GREATEST(1, nothing)", None),
    ("LEAST(3, 1)", 1),
    ("word || '-' || 'x'", "Hello-x"),
    ("word || CAST(nothing AS STRING)", None),
    ("CONCAT('a', 'b', 'c')", "abc"),
    ("CONCAT('a', CAST(NULL AS STRING))", None),
    ("CONCAT_WS('-', 'a', CAST(NULL AS STRING), 'b')", "a-b"),
    ("UPPER(word)", "HELLO"),
    ("LOWER(word)", "hello"),
    ("INITCAP('ab cd')", "Ab Cd"),
    ("CHAR_LENGTH('aä')", 2),
    ("TRIM('  x ')", "x"),
    ("TRIM(LEADING 'x' FROM 'xxax')", "ax"),
    ("TRIM(BOTH 'x' FROM 'xxax')", "a"),
    ("LTRIM('  x ')", "x "),
    ("RTRIM('  x ')", "  x"),
    ("SUBSTRING('abcdef', 2, 3)", "bcd"),
    ("SUBSTRING('abcdef' FROM 3)", "cdef"),
    ("SUBSTR('abcdef', -2)", "ef"),
    ("LEFT('abc', 2)", "ab"),
    ("RIGHT('abc', 2)", "bc"),
    ("REPLACE('aXbX', 'X', '-')", "a-b-"),
    ("LPAD('7', 3, '0')", "007"),
    ("RPAD('7', 3, '0')", "700"),
    ("REVERSE('abc')", "cba"),
    ("REPEAT('ab', 3)", "ababab"),
    ("POSITION('l' IN 'hello')", 3),
    ("LOCATE('l', 'hello', 4)", 4),
    ("INSTR('hello', 'z')", 0),
    ("SPLIT_INDEX('a.b.c', '.', 1)", "b"),
    ("SPLIT_INDEX('a.b.c', '.', 9)", None),
    ("SPLIT_INDEX('a.b.c', '.', -1)", None),
    ("word LIKE 'He%'", True),
    ("word LIKE 'he%'", False),
    ("'a%c' LIKE 'a!%c' ESCAPE '!'", True),
    ("'abc' LIKE 'a!%c' ESCAPE '!'", False),
    ("word SIMILAR TO 'H(e|a)l+o'", True),
    ("REGEXP(word, 'l+')", True),
    ("REGEXP(word, '(?i)HELLO$')", True),
    ("REGEXP(CAST(NULL AS STRING), 'x')", None),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)')", "foothebar"),
    ("REGEXP_EXTRACT('none', '(x)', 1)", None),
    ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb"),
    ("REGEXP_REPLACE('a1', '([0-9])', '$1$1')", "a$1$1"),
    ("MD5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
    ("SHA256('abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ("TO_BASE64('hello')", "aGVsbG8="),
    ("FROM_BASE64('aGVsbG8=')", "hello"),
    ("HASH_CODE('Hello world')", 832992604),
    ("PARSE_URL('http://a.example/b?c=d', 'QUERY', 'c')", "d"),
    ("JSON_VALUE('{\"a\": {\"b\": 5}}', '$.a.b')", "5"),
    ("JSON_VALUE('{\"a\": {\"b\": 5}}', '$.a')", None),
    ("IS_DIGIT('12')", True),
    ("IS_ALPHA('a1')", False),
    ("ASCII('a')", 97),
    ("CHR(97)", "a"),
    ("COALESCE(nothing, small)", 5),
    ("NULLIF(1, 1)", None),
    ("IFNULL(nothing, 7)", 7),
    ("IF(small > 3, 'big', 'little')", "big"),
    ("CASE WHEN small > 9 THEN 'a' WHEN small > 3 THEN 'b' ELSE 'c' END", "b"),
    ("CASE small WHEN 5 THEN 1.5 ELSE 2 END", D("1.5")),
    ("small IN (1, 5)", True),
    ("small NOT IN (1, 5)", False),
    ("nothing IN (1, 5)", None),
    ("score BETWEEN 2 AND 3", True),
    ("NOT nothing > 1", None),
    ("nothing IS NULL", True),
    ("(nothing > 1) IS NOT TRUE", True),
    ("CAST('12' AS INT)", 12),
    ("CAST('x' AS INT)", None),
    ("TRY_CAST('x' AS INT)", None),
    ("CAST(2.7 AS INT)", 2),
    ("CAST(small AS STRING)", "5"),
    ("CAST(price AS DECIMAL(4, 1))", D("10.5")),
    ("place.city", "Bonn"),
    ("place.zip + 1", 53112),
    ("TO_TIMESTAMP('2026-01-02 03:04:05')", datetime.datetime(2026, 1, 2, 3, 4, 5)),
    ("TO_TIMESTAMP('nonsense')", None),
    ("TO_TIMESTAMP('02/01/2026', 'dd/MM/yyyy')", datetime.datetime(2026, 1, 2)),
    ("TO_TIMESTAMP_LTZ(1000, 3)", datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)),
    ("TO_TIMESTAMP_LTZ(5, 0)", datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)),
    ("DATE_FORMAT(TIMESTAMP '2026-01-02 03:04:05', 'yyyy/MM/dd HH')", "2026/01/02 03"),
    ("FROM_UNIXTIME(0)", "1970-01-01 00:00:00"),
    ("UNIX_TIMESTAMP('1970-01-01 00:01:00')", 60),
    ("TO_DATE('2026-01-02')", datetime.date(2026, 1, 2)),
    ("YEAR(DATE '2026-01-02')", 2026),
    ("EXTRACT(MINUTE FROM TIMESTAMP '2026-01-02 03:04:05')", 4),
    ("DAYOFWEEK(DATE '2026-11-21')", 7),
    ("FLOOR(TIMESTAMP '2026-01-02 03:04:05' TO HOUR)", datetime.datetime(2026, 1, 2, 3)),
    ("CEIL(TIMESTAMP '2026-01-02 03:04:05' TO HOUR)", datetime.datetime(2026, 1, 2, 4)),
    ("TIMESTAMPADD(DAY, 2, DATE '2026-01-30')", datetime.date(2026, 2, 1)),
    ("TIMESTAMPDIFF(HOUR, TIMESTAMP '2026-01-01 00:00:00', TIMESTAMP '2026-01-02 01:30:00')", 25),
    ("TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '1' DAY", datetime.datetime(2026, 1, 2)),
    ("TIMESTAMP '2026-03-31 00:00:00' - INTERVAL '1' MONTH", datetime.datetime(2026, 2, 28)),
    ("queue", 0),
    ("at", 0),
]

ROW = b'{"word":"Hello","small":5,"score":2.5,"price":10.5,"place":{"city":"Bonn","zip":"53111"}}'
TABLE = """
SET 'execution.runtime-mode' = 'batch';
CREATE TABLE t (
  word STRING, small INT, score DOUBLE, price DECIMAL(10, 2), nothing INT, place ROW<city STRING, zip INT>,
  queue INT METADATA FROM 'queue-id' VIRTUAL, at BIGINT METADATA FROM 'queue-offset' VIRTUAL
) WITH ('connector' = 'rocketmq', 'topic' = 't');
"""


def test_expressions_have_the_values_that_flink_documents(
    spark: SparkSession, topic: Callable[..., AbstractContextManager[Topic]]
) -> None:
    columns = ", ".join(f"{expression} AS c{number}" for number, (expression, _) in enumerate(GOLDENS))
    with topic([(0, ROW)]) as running:
        result = bounded_run(spark, running, f"{TABLE} SELECT {columns} FROM t", name="functions")
    (row,) = result.rows["result"]
    wrong = {
        expression: (got, wanted)
        for (expression, wanted), got in zip(GOLDENS, row, strict=True)
        if got != wanted or type(got) is not type(wanted)
    }
    assert wrong == {}
