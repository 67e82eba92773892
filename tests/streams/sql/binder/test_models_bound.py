"""CREATE MODEL and ML_PREDICT: what is bound, and what is refused at which place."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.errors import SqlError
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.store import ModelStore
from millstream.streams.plan.nodes import Project, QueryPlan
from millstream.streams.plan.types import BIGINT, DOUBLE
from millstream.streams.sql.session.compiler import SqlSession, TextResult

TABLE = """CREATE TABLE flows (host STRING, bytes BIGINT, seconds DOUBLE, score DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 'flows');
"""


@pytest.fixture
def session(tmp_path: Path) -> SqlSession:
    """With the table and the model `odd` of a store."""
    ModelStore(tmp_path).publish("odd", b"not looked into", "onnx")
    session = SqlSession(variables={"store": str(tmp_path)})
    session.compile(
        TABLE
        + "CREATE MODEL odd INPUT (a DOUBLE, b DOUBLE) OUTPUT (side BIGINT, score DOUBLE) WITH ('store' = '${store}');"
    )
    return session


def refusal(session: SqlSession, text: str) -> SqlError:
    with pytest.raises(SqlError) as refused:
        session.compile(text)
    return refused.value


@pytest.mark.parametrize(
    "source",
    [
        "ML_PREDICT(TABLE flows, MODEL odd, DESCRIPTOR(bytes, seconds))",
        "TABLE(ML_PREDICT(TABLE flows, MODEL odd, DESCRIPTOR(bytes, seconds)))",
        "ML_PREDICT(INPUT => TABLE flows, ARGS => DESCRIPTOR(bytes, seconds), MODEL => MODEL odd) AS p",
        "ML_PREDICT(TABLE (SELECT * FROM flows), MODEL odd, DESCRIPTOR(bytes, seconds))",
    ],
)
def test_rows_keep_their_columns_and_event_time_and_get_the_outputs_under_free_names(
    session: SqlSession, source: str
) -> None:
    plan = session.compile(f"SELECT * FROM {source};")[-1]
    assert isinstance(plan, QueryPlan)
    fields = plan.query.schema.fields
    assert [field.name for field in fields] == ["host", "bytes", "seconds", "score", "ts", "side", "score0"]
    assert [field.type for field in fields[5:]] == [BIGINT, DOUBLE]
    assert fields[4].rowtime


def test_a_call_names_the_store_and_the_columns(session: SqlSession, tmp_path: Path) -> None:
    plan = session.compile("SELECT side FROM ML_PREDICT(TABLE flows, MODEL odd, DESCRIPTOR(bytes, seconds));")[-1]
    assert isinstance(plan, QueryPlan)
    reference = ModelReference("odd", ("a", "b"), store=str(tmp_path), stored="odd")
    assert reference.call_name in repr(plan.query)
    assert ModelReference.of_call(reference.call_name) == reference


@pytest.mark.parametrize(
    ("source", "name", "words", "shown"),
    [
        ("MODEL od, DESCRIPTOR(bytes, seconds)", "SQL_UNKNOWN_NAME", 'no model "od"', "od"),
        (
            "MODEL odd, DESCRIPTOR(bytes)",
            "SQL_TYPE",
            "takes (a DOUBLE, b DOUBLE), but DESCRIPTOR names 1 column",
            "bytes",
        ),
        (
            "MODEL odd, DESCRIPTOR(bytes, host)",
            "SQL_TYPE",
            '"host" is STRING, but the model odd takes b DOUBLE',
            "host",
        ),
        ("MODEL odd, DESCRIPTOR(bytes, second)", "SQL_UNKNOWN_COLUMN", "second", "second"),
        ("MODEL odd", "SQL_SYNTAX", "needs a table, a model and the columns", "ML_PREDICT(TABLE flows, MODEL odd)"),
        ("MODEL odd, DESCRIPTOR(bytes, seconds), MAP['async', 'true']", "SQL_UNSUPPORTED", "CONFIG", "MAP"),
    ],
)
def test_what_a_model_does_not_take_is_refused_at_its_place(
    session: SqlSession, source: str, name: str, words: str, shown: str
) -> None:
    text = f"SELECT * FROM ML_PREDICT(TABLE flows, {source});"
    error = refusal(session, text)
    assert error.name == name
    assert words in error.message
    assert error.position is not None
    start = error.position.column - 1
    assert text[start : start + error.position.length] == shown


def test_rows_that_change_are_not_scored(session: SqlSession) -> None:
    grouped = "(SELECT host, SUM(bytes) AS bytes, MAX(seconds) AS seconds FROM flows GROUP BY host)"
    error = refusal(session, f"SELECT * FROM ML_PREDICT(TABLE {grouped}, MODEL odd, DESCRIPTOR(bytes, seconds));")
    assert error.name == "SQL_UNSUPPORTED"
    assert "only appended" in error.message


@pytest.mark.parametrize(
    ("definition", "name", "words"),
    [
        ("INPUT (a DOUBLE) WITH ('path' = 'm.onnx')", "SQL_SYNTAX", "needs INPUT and OUTPUT"),
        (
            "INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('path' = '/no/m.onnx')",
            "SQL_OPTION",
            "There is no file /no/m.onnx",
        ),
        ("INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('store' = '/no')", "SQL_OPTION", "no model m; it has none"),
        ("INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('provider' = 'openai')", "SQL_OPTION", "'openai' is not supported"),
        ("INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('pth' = 'x')", "SQL_OPTION", "no option 'pth'"),
        ("INPUT (a DOUBLE) OUTPUT (b DOUBLE)", "SQL_OPTION", "one of them"),
        (
            "INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('topic' = 'models', 'store' = '/no')",
            "SQL_OPTION",
            "or a 'topic', one of them",
        ),
        (
            "INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('topic' = 'models', 'provider' = 'sklearn')",
            "SQL_OPTION",
            "would run whatever code a message holds",
        ),
        ("INPUT (a DOUBLE) OUTPUT (b DOUBLE) WITH ('topic' = 'models', 'model' = '1')", "SQL_OPTION", "'1' is no name"),
        ("INPUT (a DATE) OUTPUT (b DOUBLE) WITH ('path' = 'm.onnx')", "SQL_TYPE", 'the column "a" of the type DATE'),
        ("INPUT (a DOUBLE, a INT) OUTPUT (b DOUBLE) WITH ('path' = 'm')", "SQL_SYNTAX", '"a" is declared twice'),
    ],
)
def test_a_definition_that_cannot_be_is_refused(definition: str, name: str, words: str) -> None:
    error = refusal(SqlSession(), f"CREATE MODEL m {definition};")
    assert error.name == name
    assert words in error.message
    assert error.position is not None


def test_a_file_says_its_format_by_its_name_or_the_provider_says_it(tmp_path: Path) -> None:
    file = tmp_path / "m.bin"
    file.write_bytes(b"x")
    session = SqlSession(variables={"file": str(file)})
    columns = "INPUT (a DOUBLE) OUTPUT (b DOUBLE)"
    assert (
        "does not say the format" in refusal(session, f"CREATE MODEL m {columns} WITH ('path' = '${{file}}');").message
    )
    session.compile(f"CREATE MODEL m {columns} WITH ('path' = '${{file}}', 'provider' = 'sklearn');")
    model = session.catalog.model(("m",))
    assert model is not None
    assert model.reference == ModelReference("m", ("a",), file=str(file), format="sklearn")


def test_a_model_of_a_topic_is_the_last_message_with_its_name() -> None:
    session = SqlSession()
    columns = "INPUT (a DOUBLE) OUTPUT (b DOUBLE)"
    session.compile(f"CREATE MODEL m {columns} WITH ('topic' = 'models');")
    session.compile(f"CREATE MODEL n {columns} WITH ('topic' = 't', 'model' = 'x', 'nameserver' = 'far:9876');")
    found = [session.catalog.model((name,)) for name in "mn"]
    assert [model.reference for model in found if model is not None] == [
        ModelReference("m", ("a",), topic="models", stored="m"),
        ModelReference("n", ("a",), topic="t", stored="x", nameserver="far:9876"),
    ]


def test_models_are_shown_described_and_dropped(session: SqlSession) -> None:
    def said(text: str) -> TextResult:
        (result,) = session.compile(text)
        assert isinstance(result, TextResult)
        return result

    assert said("SHOW MODELS;").rows == (("odd",),)
    assert said("DESCRIBE MODEL odd;").rows[1:3] == (("b", "DOUBLE", "input"), ("side", "BIGINT", "output"))
    assert (
        refusal(session, "CREATE MODEL odd INPUT (a INT) OUTPUT (b INT) WITH ('store' = '${store}');").name
        == "SQL_TABLE_EXISTS"
    )
    assert "exists already" in said("CREATE MODEL IF NOT EXISTS odd INPUT (a INT) OUTPUT (b INT);").title
    assert refusal(session, "DROP MODEL od;").name == "SQL_UNKNOWN_NAME"
    assert said("DROP MODEL odd;").title == "odd is dropped."
    assert said("SHOW MODELS;").rows == ()
    assert "There is no model" in said("DROP MODEL IF EXISTS odd;").title


def test_a_prediction_is_two_projections(session: SqlSession) -> None:
    plan = session.compile("SELECT * FROM ML_PREDICT(TABLE flows, MODEL odd, DESCRIPTOR(bytes, seconds));")[-1]
    assert isinstance(plan, QueryPlan)
    assert isinstance(plan.query, Project)
