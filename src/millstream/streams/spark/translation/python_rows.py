"""Users' Python functions in Spark: a stage of Python workers between the columns below and above it."""

from __future__ import annotations

import sys
from dataclasses import replace

from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql import types as spark

from millstream.streams.errors import JobError
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.types import Schema
from millstream.streams.plan.user_calls import OnError, PythonRows
from millstream.streams.spark.columns.copies import KEEP_COLUMN, settle
from millstream.streams.spark.columns.rows import Rows, quoted_name
from millstream.streams.spark.columns.types import arrow_schema, spark_type
from millstream.streams.spark.functions.user_spool import call_spool
from millstream.streams.spark.translation.python_stage import PythonStage, PythonStep
from millstream.streams.spark.translation.user_calls import UserCalls

__all__ = ["python_rows"]

_MADE = "__made_"


def python_rows(node: PythonRows, rows: Rows, calls: UserCalls) -> Rows:
    """The rows of `node` over those of its input; `calls` takes what fails.

    Raises JobError JOB_FAILED for a function that cannot be shipped.
    """
    known = node.input.schema.names
    names = tuple(name for name in known if name in node.kept or name in node.reads)
    below = settle(rows, names, names)
    given = below.rows.frame.schema
    places = tuple(place for place, of in enumerate(given.fields) if of.name in node.kept or of.name not in names)
    schema = spark.StructType([spark.StructField(given[place].name, given[place].dataType) for place in places])
    for field in node.made:
        schema = schema.add(f"{_MADE}{field.name}", spark_type(field.type))
    types = {of.name: of for of in node.input.schema.fields}
    stage = f"python-{calls.number()}"
    table = next((scan.table for scan in scans_of(node) if calls.has_dead_letter_topic(scan.table)), None)
    letters = table is not None and node.code.on_error is OnError.DEAD_LETTER
    if table is not None and letters:
        calls.tables[stage] = table
    step = PythonStep(
        name=node.code.name,
        stage=stage,
        kind=node.kind,
        on_error=node.code.on_error,
        code=_pickle_function(node),
        roots=_roots(node),
        reads=Schema(tuple(types[name] for name in node.reads)),
        kept=places,
        keep=given.names.index(KEEP_COLUMN),
        made=node.made,
        output=arrow_schema(schema),
        spool=call_spool(calls.spool),
        letters=letters,
        timeout_ms=calls.timeout_ms,
    )
    frame = below.rows.frame.mapInArrow(PythonStage(step), schema)
    found = replace(below, names=tuple(name for name in names if name in node.kept)).over(frame, [rows])
    made = {of.name: F.col(quoted_name(f"{_MADE}{of.name}")) for of in node.made}
    columns = {**found.columns, **made}
    return found.with_columns({name: columns[name] for name in node.schema.names})


def _roots(node: PythonRows) -> tuple[str, ...]:
    """Where this process imports from: a worker on this machine finds there what the function names."""
    return tuple(dict.fromkeys(root for root in (node.code.root, *sys.path) if root))


def _pickle_function(node: PythonRows) -> bytes:
    try:
        code: bytes = cloudpickle.dumps((node.code.function, node.code.row_type))  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - what a user's function holds may raise anything
        message = f"{node.code.name} cannot be sent to the workers: {error}."
        remedy = "Let it use no open files, locks or connections of this process; make them when it is called."
        raise JobError("JOB_FAILED", message, remedy=remedy) from None
    return code
