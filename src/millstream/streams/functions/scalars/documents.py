"""JSON. A path is `$`, `.member`, `['member']`, `[0]`, `[*]` and the like, in mode lax (as it is) or strict."""

from __future__ import annotations

from millstream.streams.functions.common_type import common_type
from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin, array_of
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, VARIANT, DataType

__all__ = ["DOCUMENTS", "JSON_VALUE_TYPES"]

JSON_VALUE_TYPES: dict[str, DataType] = {
    "STRING": STRING, "BOOLEAN": BOOLEAN, "INT": INT, "BIGINT": BIGINT, "DOUBLE": DOUBLE,
}  # fmt: skip
"""What JSON_VALUE can return, by the word that stands for it in a call."""

_NEVER_NULL = STRING.as_nullable(False)


def _type_of_json_value(given: ArgumentTypes) -> DataType:
    word = given.literal(2)
    returned = STRING if word is None else JSON_VALUE_TYPES[str(word)]
    for default in given.types[3:]:
        common_type((returned, default))
    return returned


def _type_of_json_query(given: ArgumentTypes) -> DataType:
    return array_of(STRING) if given.literal(5) == "ARRAY" else STRING


DOCUMENTS: tuple[FunctionSpec, ...] = (
    FunctionSpec("JSON_VALUE", "document STRING, path STRING [, returning STRING [, on_empty ANY, on_error ANY]]", _type_of_json_value, "The scalar at a path; NULL, or the default, where there is none. ERROR is treated as NULL.", "JSON_VALUE('{\"a\": true}', '$.a' RETURNING BOOLEAN)", "TRUE", spelled="JSON_VALUE(document, path [RETURNING type] [NULL | DEFAULT value ON EMPTY] [NULL | DEFAULT value ON ERROR])"),
    FunctionSpec("JSON_QUERY", "document STRING, path STRING [, wrapper STRING, on_empty STRING, on_error STRING [, returned STRING]]", _type_of_json_query, "The object or array at a path, as JSON or an ARRAY<STRING>; scalars only in a wrapper. ERROR is treated as NULL.", "JSON_QUERY('{\"a\": [{\"c\": \"c1\"}, {\"c\": \"c2\"}]}', 'lax $.a[*].c')", "'[\"c1\",\"c2\"]'", spelled="JSON_QUERY(document, path [RETURNING type] [WITHOUT | WITH CONDITIONAL | WITH UNCONDITIONAL [ARRAY] WRAPPER] [NULL | EMPTY ARRAY | EMPTY OBJECT ON EMPTY] [... ON ERROR])"),
    FunctionSpec("JSON_TUPLE", "document STRING, paths... STRING", array_of(STRING), "The scalars at several paths or members, as rows of LATERAL TABLE(...).", "JSON_TUPLE('{\"a\": 1, \"b\": \"x\"}', 'a', '$.b')", "['1', 'x']", Origin.BLINK),
    FunctionSpec("JSON_EXISTS", "document STRING, path STRING [, on_error STRING]", BOOLEAN, "Whether there is something at a path.", "JSON_EXISTS('{\"a\": [{\"b\": 1}]}', '$.a[0].b')", "TRUE", spelled="JSON_EXISTS(document, path [TRUE | FALSE | UNKNOWN ON ERROR])"),
    FunctionSpec("IS JSON", "document STRING, shape STRING", BOOLEAN.as_nullable(False), "Whether the text is JSON, perhaps of one shape; FALSE for NULL.", "'1' IS JSON SCALAR", "TRUE", spelled="text IS [NOT] JSON [VALUE | SCALAR | ARRAY | OBJECT]"),
    FunctionSpec("PARSE_JSON", "text STRING", VARIANT, "The JSON of a text as a VARIANT; NULL if it is none, or if an object has a member twice. v['member'] and v[place] are what is inside, from 1 on.", "PARSE_JSON('{\"b\": 1.0, \"a\": [true]}')", "'{\"a\":[true],\"b\":1}'"),
    FunctionSpec("TRY_PARSE_JSON", "text STRING", VARIANT, "The same.", "TRY_PARSE_JSON('{')", "NULL"),
    FunctionSpec("JSON_STRING", "value ANY", STRING, "The value as JSON; NULL for NULL.", "JSON_STRING(ARRAY[1, 2])", "'[1,2]'"),
    FunctionSpec("JSON_OBJECT", "nulls STRING [, pairs... ANY]", _NEVER_NULL, "A JSON object; the calls of JSON_OBJECT, JSON_ARRAY and JSON inside it are put in as they are.", "JSON_OBJECT('K1' VALUE 'V1', 'K2' VALUE 2)", "'{\"K1\":\"V1\",\"K2\":2}'", spelled="JSON_OBJECT([[KEY] key VALUE value, ...] [NULL | ABSENT ON NULL])"),
    FunctionSpec("JSON_ARRAY", "nulls STRING [, values... ANY]", _NEVER_NULL, "A JSON array, without NULLs by default.", "JSON_ARRAY(1, '2')", "'[1,\"2\"]'", spelled="JSON_ARRAY([value, ...] [NULL | ABSENT ON NULL])"),
    FunctionSpec("JSON", "text STRING", STRING, "The text to be put into JSON_OBJECT or JSON_ARRAY as it is; NULL if it is no JSON.", "JSON_ARRAY(JSON('{\"a\":1}'))", "'[{\"a\":1}]'"),
    FunctionSpec("JSON_QUOTE", "text STRING", STRING, "The text as a JSON string.", "JSON_QUOTE('a\"b')", "'\"a\\\"b\"'"),
    FunctionSpec("JSON_UNQUOTE", "text STRING", STRING, "The text of a JSON string; what is none stays as it is.", "JSON_UNQUOTE('\"a\\u0041\"')", "'aA'"),
)  # fmt: skip
"""Their rows of the registry."""
