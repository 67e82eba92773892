"""User functions in Spark: a stage of Python workers between data frames."""

from __future__ import annotations

import datetime
import hashlib
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.calling import call_by_row
from millstream.streams.functions.user_functions.failed_calls import FailedCall, UserFunctionFailed, failed_call
from millstream.streams.functions.user_functions.user_values import Row
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.types import DataType, Field, Schema, TypeKind
from millstream.streams.plan.user_calls import OnError, PythonKind, PythonRows
from millstream.streams.spark.columns.rows import KEEP_COLUMN, Rows, quoted_name, settle
from millstream.streams.spark.columns.types import arrow_schema, spark_type
from millstream.streams.spark.functions.user_calls import SpooledCall, call_spool
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.spark.translation.user_calls import UserCalls
from millstream.streams.state.spool import Spool

__all__ = ["PythonStage", "PythonStep", "python_rows"]


MAX_VALUE_CHARACTERS: Final = 500
"""How much of a value of the wrong type is shown."""


@dataclass(frozen=True, slots=True)
class PythonStep:
    """One function of a job, as it travels to the workers.

    `name` is that of the function, `stage` that of the step. `code` is the pickled pair of the function and the class
    of its rows. A call may take `timeout_ms`, None for any time. The columns `reads` are those that it sees, `kept` the
    places of those that stay as they are, `keep` that of the flag that says whether a row is one at all. `output` is
    the Arrow schema: what is kept, then what is `made`. `spool` is where failed calls are left, with their rows where
    `letters` says so; `roots` are directories to import from.
    """

    name: str
    stage: str
    kind: PythonKind
    on_error: OnError
    code: bytes
    roots: tuple[str, ...]
    reads: Schema
    kept: tuple[int, ...]
    keep: int
    made: tuple[Field, ...]
    output: pa.Schema
    spool: Spool[SpooledCall]
    letters: bool
    timeout_ms: int | None = None


@dataclass
class _Made:
    """What came of a batch: for each row made the place of the row it is made of, and its values; and what failed."""

    places: list[int] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    failed: list[tuple[int, BaseException]] = field(default_factory=list)


class PythonStage:
    """The function of a stage. A row of which nothing is made stays as one that only moves event time."""

    def __init__(self, step: PythonStep) -> None:
        self._step = step
        self._types = [of.type for of in list(step.output)[len(step.kept) :]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step = self._step
        function, row_type = _load_function(step)
        for batch in batches:
            keep = batch.column(step.keep).to_pylist()
            places = [place for place, kept in enumerate(keep) if kept]
            if step.kind is PythonKind.MAP_BATCHES:
                yield self._of_batch(batch, places, function)
                continue
            made = self._of_rows(batch, places, function, row_type or Row)
            self._tell(batch, made.failed)
            yield self._output(batch, made)

    def _of_rows(
        self, batch: pa.RecordBatch, places: Sequence[int], function: Callable[..., Any], row_type: type
    ) -> _Made:
        """Call the function for each row."""
        step = self._step

        def rows_of(row: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return [_values(one, step.made) for one in _answers(step.kind, function(row_type(**row)))]

        given = [(row,) for row in _rows(batch, places, step)]
        answers, failures = call_by_row(rows_of, given, step.timeout_ms)
        made = _Made(failed=[(places[number], error) for number, error in failures])
        for place, found in zip(places, answers, strict=True):
            for values in found or ():
                made.places.append(place)
                made.rows.append(values)
        return made if _are_fit(made.rows, self._types) else self._fitting(made)

    def _fitting(self, made: _Made) -> _Made:
        """What was made without the rows of which something has another type than is declared."""
        wrong: dict[int, BaseException] = {}
        for place, values in zip(made.places, made.rows, strict=True):
            try:
                _check_types(values, self._types, self._step.made)
            except TypeError as error:
                wrong.setdefault(place, error)
        pairs = [pair for pair in zip(made.places, made.rows, strict=True) if pair[0] not in wrong]
        return _Made([place for place, _ in pairs], [values for _, values in pairs], [*made.failed, *wrong.items()])

    def _output(self, batch: pa.RecordBatch, made: _Made) -> pa.RecordBatch:
        """The rows made, and behind them those of which nothing was."""
        step = self._step
        given = set(made.places)
        silent = [place for place in range(batch.num_rows) if place not in given]
        nothing = (None,) * len(step.made)
        rows = [*made.rows, *(nothing for _ in silent)]
        flags = [True] * len(made.places) + [False] * len(silent)
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in step.made]
        arrays = [pa.array(values, of) for values, of in zip(columns, self._types, strict=True)]
        return self._batch(batch, [*made.places, *silent], flags, arrays)

    def _of_batch(self, batch: pa.RecordBatch, places: Sequence[int], function: Callable[..., Any]) -> pa.RecordBatch:
        """Call the function once for all rows."""
        step = self._step
        chosen = _read(batch, places, step)
        silent = sorted(set(range(batch.num_rows)) - set(places))
        try:
            arrays = _columns(function(chosen), chosen.num_rows, self._types, step.made) if places else []
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            self._tell(batch, [(place, error) for place in places])
            places, silent, arrays = [], list(range(batch.num_rows)), []
        if not arrays:
            arrays = [pa.array([], of) for of in self._types]
        padded = [pa.concat_arrays([array, pa.nulls(len(silent), array.type)]) for array in arrays]
        return self._batch(batch, [*places, *silent], [True] * len(places) + [False] * len(silent), padded)

    def _batch(
        self, batch: pa.RecordBatch, places: list[int], flags: list[bool], made: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        step = self._step
        selected = batch.take(pa.array(places, pa.int32()))
        kept = [pa.array(flags, pa.bool_()) if place == step.keep else selected.column(place) for place in step.kept]
        return pa.RecordBatch.from_arrays([*kept, *made], schema=step.output)

    def _tell(self, batch: pa.RecordBatch, failed: Sequence[tuple[int, BaseException]]) -> None:
        """Leave failed calls to the driver, in a file that a second look at the same rows writes again.

        Raises UserFunctionFailed where they end the job.
        """
        if not failed:
            return
        step, places = self._step, [place for place, _ in failed]
        calls = [
            failed_call(step.name, [row], error)
            for row, (_, error) in zip(_rows(batch, places, step), failed, strict=True)
        ]
        rows = encode_rows(_read(batch, places, step), step.reads) if step.letters else [b""] * len(failed)
        ends = step.on_error is OnError.FAIL
        spooled = [SpooledCall(step.stage, call, row, ends) for call, row in zip(calls, rows, strict=True)]
        content = repr([(str(one.call), one.row) for one in spooled]).encode()
        step.spool.put(f"{step.stage}-{hashlib.sha256(content).hexdigest()[:32]}", spooled)
        if ends:
            raise UserFunctionFailed(calls[0])


def _load_function(step: PythonStep) -> tuple[Callable[..., Any], type | None]:
    """The function, and the class of its rows."""
    sys.path += [root for root in step.roots if root not in sys.path]
    try:
        function, row_type = pickle.loads(step.code)
    except Exception as error:
        reason = f"a worker cannot load it: {type(error).__name__}: {error}"
        call = FailedCall(step.name, "", reason, "")
        step.spool.put(f"{step.stage}-load", [SpooledCall(step.stage, call, ends=True)])
        raise UserFunctionFailed(call) from error
    return function, row_type


def _rows(batch: pa.RecordBatch, places: Sequence[int], step: PythonStep) -> list[dict[str, Any]]:
    chosen = _read(batch, places, step)
    columns = [
        _python_values(chosen.column(number).to_pylist(maps_as_pydicts="lossy"), of.type)
        for number, of in enumerate(step.reads.fields)
    ]
    return [dict(zip(step.reads.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _read(batch: pa.RecordBatch, places: Sequence[int], step: PythonStep) -> pa.RecordBatch:
    """The rows at the places, of the columns that the function sees."""
    return batch.select(list(step.reads.names)).take(pa.array(places, pa.int32()))


def _python_values(values: list[Any], data_type: DataType) -> list[Any]:
    """Python values of a column; a TIMESTAMP has no zone."""
    if data_type.kind is TypeKind.TIMESTAMP:
        return [None if value is None else value.replace(tzinfo=None) for value in values]
    return values


def _answers(kind: PythonKind, answer: Any) -> Iterable[Any]:
    """The rows that an answer of a function stands for."""
    match kind:
        case PythonKind.FILTER:
            return ((),) if answer else ()
        case PythonKind.FOREACH:
            return ((),)
        case PythonKind.FLAT_MAP:
            return () if answer is None else answer
        case _:
            return () if answer is None else (answer,)


def _values(answer: Any, made: Sequence[Field]) -> tuple[Any, ...]:
    """The values of one row. Raises TypeError for what has other fields than are declared."""
    if not made:
        return ()
    names = [of.name for of in made]
    if isinstance(answer, Mapping):
        missing = [name for name in answer if name not in names]
        if missing:
            raise TypeError(f"the result has {', '.join(map(repr, missing))}, but its columns are {', '.join(names)}")
        parts = [answer.get(name) for name in names]
    elif all(hasattr(answer, name) for name in names) and not isinstance(answer, str | bytes):
        parts = [getattr(answer, name) for name in names]
    elif isinstance(answer, tuple | list) and (len(made) > 1 or made[0].type.kind is not TypeKind.ARRAY):
        parts = list(answer)
    else:
        parts = [answer]
    if len(parts) != len(made):
        raise TypeError(f"the result has {len(parts)} values, but the columns are {', '.join(names)}")
    return tuple(_arrow_value(value, of.type) for value, of in zip(parts, made, strict=True))


def _arrow_value(value: Any, data_type: DataType) -> Any:
    """The value in the form that Arrow takes for the type."""
    if value is None:
        return None
    match data_type.kind:
        case TypeKind.ROW:
            names = [of.name for of in data_type.fields]
            return dict(zip(names, _values(value, data_type.fields), strict=True))
        case TypeKind.ARRAY:
            return [_arrow_value(part, data_type.elements[0]) for part in value]
        case TypeKind.MAP:
            key, mapped = data_type.elements
            return [(_arrow_value(name, key), _arrow_value(part, mapped)) for name, part in value.items()]
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ if isinstance(value, datetime.datetime):
            return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
        case _:
            return value


def _are_fit(rows: Sequence[tuple[Any, ...]], types: Sequence[pa.DataType]) -> bool:
    """Whether all values are of their declared types."""
    try:
        return all(_is_exact(values, of) for values, of in zip(zip(*rows, strict=True), types, strict=False))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def _is_exact(values: Sequence[Any], arrow: pa.DataType) -> bool:
    """Whether the values become the type and stay what they are: Arrow would cut 1.5 down to a whole number."""
    pa.array(values, arrow)
    return not pa.types.is_integer(arrow) or not any(isinstance(value, float) for value in values)


def _check_types(values: Sequence[Any], types: Sequence[pa.DataType], made: Sequence[Field]) -> None:
    """Raises TypeError for a value that is not of its declared type."""
    for value, arrow, of in zip(values, types, made, strict=True):
        if not _are_fit([(value,)], [arrow]):
            shown = repr(value)[:MAX_VALUE_CHARACTERS]
            raise TypeError(f"{of.name} should be {of.type}, but it is {shown} ({type(value).__name__})")


def _columns(answer: Any, rows: int, types: Sequence[pa.DataType], made: Sequence[Field]) -> list[pa.Array]:
    """The columns that a function of batches gives. Raises TypeError for others than it declares."""
    if isinstance(answer, Mapping):
        answer = pa.table(dict(answer))
    if not isinstance(answer, pa.Table | pa.RecordBatch):
        raise TypeError(f"the result is a {type(answer).__name__}, not a RecordBatch, a Table or a dict of columns")
    if answer.num_rows != rows:
        raise TypeError(f"the result has {answer.num_rows} rows, but the batch has {rows}: rows stay what they are")
    arrays = []
    for of, declared in zip(types, made, strict=True):
        if declared.name not in answer.schema.names:
            raise TypeError(f"the result has no column {declared.name}; it has {', '.join(answer.schema.names)}")
        column = answer.column(declared.name)
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        arrays.append(array if array.type == of else array.cast(of))
    return arrays


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
    for new in node.made:
        schema = schema.add(f"{_MADE}{new.name}", spark_type(new.type))
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
