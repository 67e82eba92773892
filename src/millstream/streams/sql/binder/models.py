"""Binds CREATE MODEL and ML_PREDICT."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.streams.errors import ModelError
from millstream.streams.learning.model import Model, ModelReference
from millstream.streams.learning.store import FORMATS, ModelStore, checked_name, format_of
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import STRING, DataType, Field, TypeKind
from millstream.streams.sql.binder.relations import Relation, add_columns, fresh_name, project, scope_of
from millstream.streams.sql.binder.scalars import bind_term, convert_type
from millstream.streams.sql.syntax.queries import PredictionSource
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.statements import CreateModel
from millstream.streams.sql.syntax.tables import ColumnDefinition

__all__ = ["OPTIONS", "bind_model", "bind_prediction"]

OPTIONS: Final = ("provider", "path", "store", "topic", "model", "nameserver")
"""The options of CREATE MODEL."""

_PLACES = ("path", "store", "topic")
_PLAIN = (TypeKind.STRING, TypeKind.BOOLEAN)


def bind_model(statement: CreateModel, script: Script) -> Model:
    """The model that the statement declares; its artefact is there and is not loaded. Raises SqlError."""
    if not statement.inputs or not statement.outputs:
        message = "A model needs INPUT and OUTPUT with the columns that it takes and gives."
        remedy = "Write CREATE MODEL m INPUT (a DOUBLE) OUTPUT (score DOUBLE) WITH ('path' = '...')."
        raise script.error("SQL_SYNTAX", message, statement.span, remedy=remedy)
    inputs = _fields(statement.inputs, script, lists=False)
    outputs = _fields(statement.outputs, script, lists=True)
    return Model(_reference(statement, tuple(field.name for field in inputs), script), inputs, outputs)


def _fields(columns: tuple[ColumnDefinition, ...], script: Script, *, lists: bool) -> tuple[Field, ...]:
    fields: list[Field] = []
    for column in columns:
        data_type = column.type
        assert data_type is not None
        if any(field.name == column.name for field in fields):
            raise script.error("SQL_SYNTAX", f'The column "{column.name}" is declared twice.', column.span)
        inside = data_type.elements[0] if lists and data_type.kind is TypeKind.ARRAY else data_type
        if not inside.is_number and inside.kind not in _PLAIN:
            message = f'A model cannot have the column "{column.name}" of the type {data_type}.'
            remedy = f"Use numbers, STRING and BOOLEAN{', and ARRAY of them for an output' if lists else ''}."
            raise script.error("SQL_TYPE", message, column.span, remedy=remedy)
        fields.append(Field(column.name, data_type.as_nullable()))
    return tuple(fields)


def _reference(statement: CreateModel, inputs: tuple[str, ...], script: Script) -> ModelReference:
    for option in statement.options:
        if option.key not in OPTIONS:
            message = f"A model has no option '{option.key}'."
            remedy = did_you_mean(option.key, OPTIONS) or f"Options are {', '.join(OPTIONS)}."
            raise script.error("SQL_OPTION", message, option.span, remedy=remedy)
    values = {option.key: option.value for option in statement.options}
    spans = {option.key: option.span for option in statement.options}
    provider = values.get("provider", "").lower()
    if provider and provider not in FORMATS:
        message = f"The provider {provider!r} is not supported."
        raise script.error("SQL_OPTION", message, spans["provider"], remedy=f"Use one of {', '.join(FORMATS)}.")
    name = statement.path.parts[-1]
    if sum(place in values for place in _PLACES) != 1:
        message = "A model has a 'path' (its file), a 'store' (a directory with versions) or a 'topic', one of them."
        raise script.error("SQL_OPTION", message, statement.span)
    if "store" in values:
        stored = values.get("model", name)
        store = Path(values["store"]).absolute()
        try:
            ModelStore(store).current(stored)
        except ModelError as error:
            raise script.error("SQL_OPTION", error.message, spans["store"], remedy=error.remedy) from None
        return ModelReference(name, inputs, store=str(store), stored=stored)
    if "topic" in values:
        return _message(name, inputs, values, spans, script)
    return _file(name, inputs, Path(values["path"]).absolute(), provider, spans["path"], script)


def _message(
    name: str, inputs: tuple[str, ...], values: dict[str, str], spans: dict[str, Span], script: Script
) -> ModelReference:
    """A model that comes by a topic: who may send there must not be able to run code in the job."""
    if values.get("provider", "onnx").lower() != "onnx":
        message = (
            "A model of a topic is one of ONNX: loading one of scikit-learn would run whatever code a message holds."
        )
        remedy = "Convert it (skl2onnx), or use a 'store'."
        raise script.error("SQL_OPTION", message, spans["provider"], remedy=remedy)
    try:
        stored = checked_name(values.get("model", name))
    except ModelError as error:
        raise script.error(
            "SQL_OPTION", error.message, spans.get("model", spans["topic"]), remedy=error.remedy
        ) from None
    return ModelReference(name, inputs, stored=stored, topic=values["topic"], nameserver=values.get("nameserver", ""))


def _file(name: str, inputs: tuple[str, ...], file: Path, provider: str, span: Span, script: Script) -> ModelReference:
    if not file.is_file():
        raise script.error("SQL_OPTION", f"There is no file {file}.", span, remedy="Correct 'path'.")
    form = provider or format_of(file)
    if form is None:
        message = f"The name {file.name} does not say the format of the model."
        raise script.error("SQL_OPTION", message, span, remedy=f"Set 'provider' to one of {', '.join(FORMATS)}.")
    return ModelReference(name, inputs, file=str(file), format=form)


def bind_prediction(source: PredictionSource, inside: Relation, script: Script) -> Node:
    """The rows of `inside`, with the outputs of the model behind their columns. Raises SqlError."""
    model = _model(source, script)
    if changelog_of(inside.node) is ChangelogMode.RETRACT:
        message = (
            "ML_PREDICT takes rows that are only appended: a newer version could say otherwise of a row that goes."
        )
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy="Predict below what makes them change.")
    node = inside.node
    used_names = set(node.schema.names)
    hidden = fresh_name("prediction", used_names)
    call = Call(model.reference.call_name, _arguments(source, model, inside, script), model.result)
    row = Column(hidden, model.result)
    own = ((field.name, Column(field.name, field.type)) for field in node.schema.fields)
    described = (
        (fresh_name(field.name, used_names), Call("FIELD", (row, Literal(field.name, STRING)), field.type))
        for field in model.outputs
    )
    return project(add_columns(node, [(hidden, call)]), (*own, *described))


def _model(source: PredictionSource, script: Script) -> Model:
    models = script.models
    found = models.model(source.model) if models is not None else None
    if found is None:
        name = ".".join(source.model)
        known = models.model_names() if models is not None else []
        remedy = did_you_mean(name, known) or "Create it first: CREATE MODEL."
        raise script.error("SQL_UNKNOWN_NAME", f'There is no model "{name}".', source.model_span, remedy=remedy)
    return found


def _arguments(source: PredictionSource, model: Model, inside: Relation, script: Script) -> tuple[Expression, ...]:
    name = ".".join(source.model)
    if len(source.features) != len(model.inputs):
        wanted = ", ".join(f"{field.name} {field.type}" for field in model.inputs)
        message = f"The model {name} takes ({wanted}), but DESCRIPTOR names {_count_text(len(source.features))}."
        raise script.error("SQL_TYPE", message, source.features[0].span.to(source.features[-1].span))
    scope = scope_of(inside, script, "DESCRIPTOR")
    arguments = []
    for feature, field in zip(source.features, model.inputs, strict=True):
        value = bind_term(feature, scope)
        if not _fits(value.type, field.type):
            message = f'"{feature.parts[-1]}" is {value.type}, but the model {name} takes {field.name} {field.type}.'
            raise script.error("SQL_TYPE", message, feature.span, remedy="CAST it in a sub-query.")
        arguments.append(convert_type(value, field.type))
    return tuple(arguments)


def _fits(have: DataType, wanted: DataType) -> bool:
    return have.kind is wanted.kind or (have.is_number and wanted.is_number)


def _count_text(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"
