"""Options of tables: each is checked when the table is made, under our names and under those of other products."""

from __future__ import annotations

import pytest
from compiling import compiled, refused

from millstream.streams.connectors.options import OptionProblem
from millstream.streams.plan.tables import Table
from millstream.streams.sql.options.option_checks import CONNECTORS, check_options
from millstream.streams.sql.session.compiler import SqlSession, TextResult

TOPIC = "'connector' = 'rocketmq', 'topic' = 't'"
FILES = "'connector' = 'filesystem', 'path' = '/x'"
JDBC = "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 't'"


def made(options: str, columns: str = "a INT, b STRING") -> tuple[Table, str]:
    """The table, and what was said when it was made."""
    session = SqlSession()
    said = session.compile(f"CREATE TABLE t ({columns}) WITH ({options})")[-1]
    assert isinstance(said, TextResult)
    return session.catalog.tables[session.catalog.full_name(("t",))].table, said.title


@pytest.mark.parametrize(
    ("name", "reads", "writes", "looks_up"),
    [
        ("rocketmq", True, True, False), ("upsert-rocketmq", True, True, True), ("filesystem", True, True, True),
        ("jdbc", True, True, True), ("nexmark", True, False, False), ("datagen", True, False, False),
        ("print", False, True, False), ("blackhole", False, True, False), ("http", False, True, False),
        ("elasticsearch", True, True, False),
    ],
)  # fmt: skip
def test_a_connector_says_what_it_can_do(name: str, reads: bool, writes: bool, looks_up: bool) -> None:
    connector = CONNECTORS[name]
    assert (connector.reads, connector.writes, connector.looks_up) == (reads, writes, looks_up)


def test_every_default_is_a_legal_value() -> None:
    for connector in CONNECTORS.values():
        for option in connector.options:
            if option.default is not None:
                assert option.problem(option.default) is None, (connector.name, option.name)


@pytest.mark.parametrize(
    "options",
    [
        f"{TOPIC}, 'format' = 'csv', 'csv.field-delimiter' = '|', 'csv.ignore-parse-errors' = 'true'",
        f"{TOPIC}, 'format' = 'debezium-json', 'debezium-json.schema-include' = 'true'",
        f"{TOPIC}, 'format' = 'canal-json', 'canal-json.table.include' = 'a.*'",
        f"{TOPIC}, 'format' = 'maxwell-json', 'maxwell-json.ignore-parse-errors' = 'true'",
        f"{TOPIC}, 'format' = 'changelog-json'",
        f"{TOPIC}, 'scan.startup.mode' = 'specific-offsets', 'scan.startup.specific-offsets' = 'queue:0,offset:42;broker:b,queue:1,offset:3'",
        f"{TOPIC}, 'scan.startup.mode' = 'group-offsets', 'consumer.group' = 'g'",
        f"{TOPIC}, 'key.format' = 'raw', 'key.fields' = 'b', 'value.fields-include' = 'EXCEPT_KEY'",
        f"{JDBC}, 'username' = 'u', 'password' = 'p', 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '100'",
        "'connector' = 'filesystem', 'path' = '/x', 'source.monitor-interval' = '5 s', 'sink.partition-commit.trigger' = 'partition-time',"
        " 'sink.partition-commit.delay' = '1 min', 'sink.partition-commit.policy.kind' = 'success-file',"
        " 'partition.time-extractor.timestamp-pattern' = '$dt $hm:00'",
        "'connector' = 'nexmark', 'first-event.rate' = '100', 'next-event.rate' = '100', 'events.num' = '0', 'person.proportion' = '1',"
        " 'auction.proportion' = '3', 'bid.proportion' = '46', 'rate.shape' = 'SINE'",
        "'connector' = 'datagen', 'rows-per-second' = '5', 'fields.a.kind' = 'sequence', 'fields.a.start' = '1', 'fields.a.end' = '9',"
        " 'fields.b.length' = '10'",
    ],
)
def test_options_that_are_legal_are_kept_as_they_are(options: str) -> None:
    table, said = made(options)
    pairs = dict(pair.split("' = '") for pair in options.strip("'").replace(",'", ", '").split("', '"))
    assert table.options == pairs
    assert said == "Table t is created."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (f"{TOPIC}, 'tagg' = 'x'", 'Did you mean "tag"?'),
        (f"{TOPIC}, 'format' = 'orc'", "one of json, csv, raw"),
        (f"{TOPIC}, 'format' = 'avro-confluent'", "needs 'avro-confluent.url'"),
        (f"{TOPIC}, 'format' = 'protobuf', 'protobuf.message-name' = 'a.B'", "needs 'protobuf.descriptor-file'"),
        (f"{TOPIC}, 'format' = 'raw'", "here are 2"),
        (f"{TOPIC}, 'key.format' = 'raw', 'key.fields' = 'a;b'", "message's key, but here are 2"),
        (f"{TOPIC}, 'csv.field-delimiter' = '|', 'format' = 'json'", "belongs to the format 'csv'"),
        (f"{TOPIC}, 'scan.startup.mode' = 'timestamp'", "needs 'scan.startup.timestamp-millis'"),
        (f"{TOPIC}, 'scan.startup.mode' = 'specific-offsets'", "needs 'scan.startup.specific-offsets'"),
        (f"{TOPIC}, 'scan.startup.mode' = 'group-offsets'", "needs 'consumer.group'"),
        (f"{TOPIC}, 'scan.startup.specific-offsets' = '0:42'", "queue:0,offset:42"),
        (f"{TOPIC}, 'key.fields' = 'b'", "needs 'key.format'"),
        (f"{TOPIC}, 'key.format' = 'raw', 'key.fields' = 'c'", "column that the table has not"),
        (f"{TOPIC}, 'key.format' = 'raw', 'key.fields' = 'b', 'key.fields-prefix' = 'k_'", "does not begin with 'k_'"),
        (f"{TOPIC}, 'key.format' = 'raw', 'key.fields' = 'b', 'key.fields-prefix' = 'b'", "EXCEPT_KEY"),
        (f"{TOPIC}, 'topic' = 'u'", "given twice"),
        (f"{TOPIC}, 'nameserver' = 'localhost'", "host:port"),
        (f"{JDBC}, 'lookup.cache' = 'ALL'", "NONE, PARTIAL, FULL"),
        (f"{JDBC}, 'scan.partition.column' = 'a'", "given together"),
        (f"{JDBC}, 'lookup.partial-cache.expire-after-write' = 'soon'", "a duration such as '5 s'"),
        ("'connector' = 'jdbc', 'url' = 'h'", "a URL"),
        ("'connector' = 'filesystem'", "needs the option 'path'"),
        (f"{FILES}, 'sink.partition-commit.policy.kind' = 'metastore'", "It is one of success-file"),
        (f"{FILES}, 'sink.partition-commit.trigger' = 'event-time'", "process-time, partition-time"),
        (f"{FILES}, 'sink.rolling-policy.file-size' = 'large'", "a size such as '128 MB'"),
        ("'connector' = 'datagen', 'fields.c.length' = '1'", "column that the table has not"),
        ("'connector' = 'datagen', 'fields.a.kind' = 'sequence'", "needs 'fields.a.start'"),
        ("'connector' = 'datagen', 'fields.a.size' = '1'", "no option 'fields.a.size'"),
        ("'connector' = 'nexmark', 'next-event.rate' = 'fast'", "events a second"),
        ("'connector' = 'upsert-rocketmq', 'topic' = 't'", "PRIMARY KEY"),
        ("'connector' = 'printt'", 'Did you mean "print"?'),
        ("'topic' = 't'", "no 'connector'"),
        (f"{TOPIC}, 'consumerGroup' = 'g', 'consumer.group' = 'h'", "say the same"),
        (f"{TOPIC}, 'encoding' = 'GBK'", "'utf-8'"),
        (f"{TOPIC}, 'msgIsJsonArray' = 'true'", "'false'"),
    ],
)
def test_options_that_are_not_legal_are_refused_with_what_helps(options: str, said: str) -> None:
    error = refused(f"CREATE TABLE t (a INT, b STRING) WITH ({options})")
    assert (error.name, said in f"{error.message} {error.remedy}") == ("SQL_OPTION", True), error
    assert error.position is not None


@pytest.mark.parametrize(
    ("written", "kept", "noted"),
    [
        ("type = 'rocketmq', topic = 't', namesrvAddr = 'h:9876', consumerGroup = 'g', isJsonData = 'true', encoding = 'UTF-8', maxThread = '4'",
         {"connector": "rocketmq", "topic": "t", "nameserver": "h:9876", "consumer.group": "g", "format": "json"}, "'maxThread' does nothing"),
        ("type = 'metaq', topic = 't', fieldDelimiter = '|'",
         {"connector": "rocketmq", "topic": "t", "csv.field-delimiter": "|", "format": "csv"}, "'fieldDelimiter' is read as 'csv.field-delimiter'"),
        ("'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'k:9092', 'properties.group.id' = 'g', 'value.format' = 'json'",
         {"connector": "rocketmq", "topic": "t", "consumer.group": "g", "format": "json"}, "'properties.bootstrap.servers' does nothing"),
        ("'connector' = 'kafka', 'topic' = 't', 'properties.group.id' = 'g', 'scan.startup.mode' = 'group-offsets', 'properties.auto.offset.reset' = 'latest'",
         {"connector": "rocketmq", "topic": "t", "consumer.group": "g", "scan.startup.mode": "group-offsets", "scan.startup.group-offsets.reset": "latest"},
         "is read as 'scan.startup.group-offsets.reset'"),
        ("'connector' = 'rocketmq', 'topic' = 't', 'scan.watermark.emit.strategy' = 'on-event'",
         {"connector": "rocketmq", "topic": "t", "scan.watermark.emit.strategy": "on-event"}, "does nothing: the watermark is told"),
        ("'connector' = 'rocketmq', 'topic' = 't', 'nameServerAddress' = 'h:9876', 'sink.parallelism' = '2'",
         {"connector": "rocketmq", "topic": "t", "nameserver": "h:9876"}, "'sink.parallelism' does nothing"),
        ("'connector.type' = 'filesystem', 'connector.path' = 'file:///x', 'format.type' = 'csv', 'connector.property-version' = '1'",
         {"connector": "filesystem", "path": "file:///x", "format": "csv"}, "'format.type' is read as 'format'"),
        ("type = 'rds', url = 'jdbc:mysql://h/d', tableName = 'x', userName = 'u', cacheTTLMs = '1000'",
         {"connector": "jdbc", "url": "jdbc:mysql://h/d", "table-name": "x", "username": "u", "lookup.partial-cache.expire-after-write": "1000"},
         "'cacheTTLMs' is read as"),
    ],
)  # fmt: skip
def test_names_of_other_products_are_read_as_ours_and_it_is_said(
    written: str, kept: dict[str, str], noted: str
) -> None:
    table, said = made(written)
    assert table.options == kept
    assert noted in said


BOTH_WAYS = "SELECT a FROM t UNION ALL SELECT a FROM t /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */"


@pytest.mark.parametrize(
    "statements",
    [
        BOTH_WAYS,
        f"EXPLAIN {BOTH_WAYS}",
        f"CREATE TABLE o WITH ('connector' = 'print') AS {BOTH_WAYS}",
        f"CREATE TABLE o (a INT) WITH ('connector' = 'print'); INSERT INTO o {BOTH_WAYS}",
        "CREATE TABLE o (a INT) WITH ('connector' = 'print'); EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT a FROM t;"
        " INSERT INTO o SELECT a FROM t /*+ OPTIONS('tag' = 'x') */; END",
    ],
)
def test_a_job_does_not_read_a_table_in_two_ways(statements: str) -> None:
    error = refused(f"CREATE TABLE t (a INT) WITH ({TOPIC}); {statements}")
    assert error.name == "SQL_UNSUPPORTED"
    assert "LIKE t" in (error.remedy or "")


def test_the_same_hint_at_each_use_of_a_table_is_one_way() -> None:
    hinted = "t /*+ OPTIONS('tag' = 'x') */"
    query = f"SELECT p.a FROM {hinted} AS p JOIN {hinted} AS q ON p.a = q.a"
    assert SqlSession().compile(f"CREATE TABLE t (a INT) WITH ({TOPIC}); {query}")


def test_the_buffers_of_jdbc_are_its_own_and_nothing_is_said_of_them() -> None:
    table, said = made(f"{JDBC}, 'sink.buffer-flush.max-rows' = '7'")
    assert table.options["sink.buffer-flush.max-rows"] == "7"
    assert said == "Table t is created."


def test_the_environment_gives_values_but_secrets_stay_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_TEST_TOPIC", "orders")
    monkeypatch.setenv("MILLSTREAM_TEST_PASSWORD", "hunter2")
    table, _ = made("'connector' = 'rocketmq', 'topic' = '${env:MILLSTREAM_TEST_TOPIC}'")
    assert table.options["topic"] == "orders"
    table, _ = made(f"{JDBC}, 'password' = '${{env:MILLSTREAM_TEST_PASSWORD}}'")
    assert table.options["password"] == "${env:MILLSTREAM_TEST_PASSWORD}"
    monkeypatch.delenv("MILLSTREAM_TEST_PASSWORD")
    error = refused(f"CREATE TABLE t (a INT) WITH ({JDBC}, 'password' = '${{env:MILLSTREAM_TEST_PASSWORD}}')")
    assert "MILLSTREAM_TEST_PASSWORD" in error.message


def test_a_problem_names_the_option_as_it_was_written() -> None:
    with pytest.raises(OptionProblem) as problem:
        check_options({"type": "rocketmq", "topic": "t", "namesrvAddr": "nowhere"})
    assert problem.value.key == "namesrvAddr"


def test_raw_is_one_plain_column_beside_the_key() -> None:
    assert made(f"{TOPIC}, 'format' = 'raw'", "line STRING")[0].options["format"] == "raw"
    beside = (
        f"{TOPIC}, 'format' = 'raw', 'key.format' = 'raw', 'key.fields' = 'k', 'value.fields-include' = 'EXCEPT_KEY'"
    )
    assert made(beside, "k STRING, line STRING")[0].options["key.fields"] == "k"
    assert "raw" in refused(f"CREATE TABLE t (a ARRAY<INT>) WITH ({TOPIC}, 'format' = 'raw')").message


def test_metadata_has_the_names_of_kafka_too() -> None:
    table, _ = made(
        TOPIC, "a INT, q INT METADATA FROM 'partition' VIRTUAL, `timestamp` TIMESTAMP_LTZ(3) METADATA VIRTUAL"
    )
    assert [column.key for column in table.metadata] == ["queue-id", "store-timestamp"]


def test_an_insert_fills_key_tag_and_properties_of_its_messages_where_their_columns_are_not_virtual() -> None:
    beside = (
        "a INT, k STRING METADATA FROM 'keys', tag STRING METADATA, p MAP<STRING, STRING> METADATA FROM 'properties'"
    )
    table, _ = made(TOPIC, f"{beside}, q INT METADATA FROM 'queue-id' VIRTUAL")
    assert [column.name for column in table.writable] == ["a", "k", "tag", "p"]
    problem = refused(f"CREATE TABLE t (a INT, q INT METADATA FROM 'queue-id') WITH ({TOPIC})")
    assert "can only be read" in problem.message
    assert "Add VIRTUAL" in (problem.remedy or "")


def test_the_key_of_an_upsert_is_its_primary_key_alone() -> None:
    table = "CREATE TABLE t (a INT, k STRING METADATA FROM 'keys', PRIMARY KEY (a) NOT ENFORCED)"
    assert "can only be read" in refused(f"{table} WITH ('connector' = 'upsert-rocketmq', 'topic' = 't')").message


def test_what_only_writes_has_no_watermark_and_what_only_reads_is_not_written() -> None:
    assert (
        refused("CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'print')").name
        == "SQL_OPTION"
    )
    error = refused(
        "CREATE TABLE t (host STRING) WITH ('connector' = 'datagen'); INSERT INTO t SELECT host FROM events"
    )
    assert "cannot be written" in error.message


def test_notes_are_said_once_and_not_again_behind_like() -> None:
    said = compiled("CREATE TABLE t (a INT) WITH (type = 'metaq', topic = 't'); CREATE TABLE u LIKE t")
    titles = [result.title for result in said if isinstance(result, TextResult)]
    assert "'metaq' is read as 'rocketmq'" in titles[0]
    assert titles[1] == "Table u is created."
