"""Conditional functions, JSON, arrays, maps and rows. Array positions start at 1."""

from __future__ import annotations

from millstream.streams.functions.casting import common_type
from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin, array_of, map_of
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, NULL, STRING, VARIANT, DataType, Field, TypeKind

__all__ = ["CHOICES", "COLLECTIONS", "DOCUMENTS", "JSON_VALUE_TYPES"]


_CHOICE_NEVER_NULL = BOOLEAN.as_nullable(False)


def _common(given: ArgumentTypes) -> DataType:
    return common_type(given.types)


def _type_of_choice(given: ArgumentTypes) -> DataType:
    return common_type(given.types[1:])


def _first(given: ArgumentTypes) -> DataType:
    common_type(given.types)
    return given.types[0].as_nullable()


CHOICES: tuple[FunctionSpec, ...] = (
    FunctionSpec("COALESCE", "values... COMMON", _common, "The first that is not NULL.", "COALESCE(NULL, 1)", "1"),
    FunctionSpec("NULLIF", "value ANY, other ANY", _first, "NULL if both are equal, else the first.", "NULLIF(5, 0)", "5"),
    FunctionSpec("IF", "condition BOOLEAN, then COMMON, otherwise COMMON", _type_of_choice, "The second if the condition holds, else the third.", "IF(5 > 3, 5, 3)", "5"),
    FunctionSpec("IFNULL", "value COMMON, replacement COMMON", _common, "The first, or the second where it is NULL.", "IFNULL(NULL, 5)", "5"),
    FunctionSpec("NVL", "value COMMON, replacement COMMON", _common, "The same as IFNULL.", "NVL(NULL, 7)", "7", Origin.BLINK),
    FunctionSpec("GREATEST", "values... COMMON", _common, "The greatest; NULL if one is.", "GREATEST(1, 3, 2)", "3"),
    FunctionSpec("LEAST", "values... COMMON", _common, "The least; NULL if one is.", "LEAST(3, 1)", "1"),
    FunctionSpec("IS_ALPHA", "value PRINTABLE", _CHOICE_NEVER_NULL, "Whether all characters are letters.", "IS_ALPHA('ab')", "TRUE"),
    FunctionSpec("IS_DIGIT", "value PRINTABLE", _CHOICE_NEVER_NULL, "Whether all characters are digits.", "IS_DIGIT('12')", "TRUE"),
    FunctionSpec("IS_DECIMAL", "value PRINTABLE", _CHOICE_NEVER_NULL, "Whether the text is a number.", "IS_DECIMAL('-1.5')", "TRUE"),
    FunctionSpec("TYPEOF", "value ANY [, full BOOLEAN]", STRING.as_nullable(False), "The type of the value.", "TYPEOF(CAST(1 AS BIGINT))", "'BIGINT NOT NULL'"),
)  # fmt: skip
"""Their rows of the registry."""


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


def _array(given: ArgumentTypes) -> DataType:
    return array_of(common_type(given.types))


def _map(given: ArgumentTypes) -> DataType:
    if len(given.types) % 2:
        raise TypeError("keys and values in pairs")
    return map_of(common_type(given.types[::2]), common_type(given.types[1::2]))


def _row(given: ArgumentTypes) -> DataType:
    names = (f"EXPR${place}" for place in range(len(given.types)))
    fields = tuple(Field(name, data_type) for name, data_type in zip(names, given.types, strict=True))
    return DataType(TypeKind.ROW, nullable=False, fields=fields)


def _field(given: ArgumentTypes) -> DataType:
    row, name = given.types[0], given.literal(1)
    found = next((field for field in row.fields if field.name == name), None)
    if found is None:
        raise TypeError(f"one of the fields {', '.join(field.name for field in row.fields)}" if row.fields else "a ROW")
    return found.type.as_nullable()


def _item(given: ArgumentTypes) -> DataType:
    collection, key = given.types
    if collection.kind is TypeKind.MAP:
        common_type((collection.elements[0], key))
        return collection.elements[1].as_nullable()
    if collection.kind is TypeKind.VARIANT and key.kind is TypeKind.STRING:
        return collection.as_nullable()
    place = given.literal(1)
    if not key.is_integer and key.kind is not TypeKind.NULL:
        raise TypeError("a whole number as the place in an array")
    if isinstance(place, int) and place < 1:
        raise TypeError("a place from 1 on")
    if collection.kind is TypeKind.VARIANT:
        return collection.as_nullable()
    return collection.elements[0].as_nullable()


def _element(given: ArgumentTypes) -> DataType:
    return given.types[0].elements[0].as_nullable()


def _same(given: ArgumentTypes) -> DataType:
    return given.types[0].as_nullable()


def _keys(given: ArgumentTypes) -> DataType:
    return array_of(given.types[0].elements[0])


def _values(given: ArgumentTypes) -> DataType:
    return array_of(given.types[0].elements[1])


def _entries(given: ArgumentTypes) -> DataType:
    key, value = given.types[0].elements
    return array_of(DataType(TypeKind.ROW, fields=(Field("key", key), Field("value", value))))


def _type_of_map(given: ArgumentTypes) -> DataType:
    keys, values = (data_type.elements[0] if data_type.elements else NULL for data_type in given.types)
    return map_of(keys, values)


COLLECTIONS: tuple[FunctionSpec, ...] = (
    FunctionSpec("ARRAY", "values... COMMON", _array, "An array of the values.", "ARRAY['Java', 'SQL']", "['Java', 'SQL']", spelled="ARRAY[value, ...]"),
    FunctionSpec("MAP", "pairs... ANY", _map, "A map of the keys and values; the last value of a key counts.", "MAP['a', 1, 'b', 2]", "{'a': 1, 'b': 2}", spelled="MAP[key, value, ...]"),
    FunctionSpec("ROW", "values... ANY", _row, "A row of the values.", "ROW(1, 'x')", "(1, 'x')", spelled="ROW(value, ...)"),
    FunctionSpec("FIELD", "row ANY, name STRING", _field, "A field of a row.", "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>).b", "'x'", spelled="row.field"),
    FunctionSpec("ITEM", "collection ITEMS, key ANY", _item, "The element at a place of an array, or the value of a key of a map; NULL where there is none. Of a VARIANT either, as a VARIANT.", "ARRAY['Java', 'SQL'][1]", "'Java'", spelled="array[place], map[key]"),
    FunctionSpec("CARDINALITY", "collection COLLECTION", INT, "How many elements or entries.", "CARDINALITY(ARRAY[1, 2])", "2"),
    FunctionSpec("ELEMENT", "array ARRAY", _element, "The only element; NULL unless there is exactly one.", "ELEMENT(ARRAY['Java'])", "'Java'"),
    FunctionSpec("ARRAY_APPEND", "array ARRAY, element ELEMENT", _same, "The array with one element more at its end.", "ARRAY_APPEND(ARRAY[1, 2], 3)", "[1, 2, 3]"),
    FunctionSpec("ARRAY_PREPEND", "array ARRAY, element ELEMENT", _same, "The array with one element more at its start.", "ARRAY_PREPEND(ARRAY[1, 2], 0)", "[0, 1, 2]"),
    FunctionSpec("ARRAY_CONCAT", "arrays... ARRAY", _same, "The arrays one after another.", "ARRAY_CONCAT(ARRAY[1], ARRAY[2, 3])", "[1, 2, 3]"),
    FunctionSpec("ARRAY_CONTAINS", "array ARRAY, element ELEMENT", BOOLEAN, "Whether the array has the element, which may be NULL.", "ARRAY_CONTAINS(ARRAY['Java', 'SQL'], 'SQL')", "TRUE"),
    FunctionSpec("ARRAY_DISTINCT", "array ARRAY", _same, "The array with each element once.", "ARRAY_DISTINCT(ARRAY[1, 2, 1])", "[1, 2]"),
    FunctionSpec("ARRAY_EXCEPT", "array ARRAY, other ARRAY", _same, "The elements that the other array has not, each once.", "ARRAY_EXCEPT(ARRAY[1, 2, 3], ARRAY[2])", "[1, 3]"),
    FunctionSpec("ARRAY_INTERSECT", "array ARRAY, other ARRAY", _same, "The elements that both arrays have, each once.", "ARRAY_INTERSECT(ARRAY[1, 2, 3], ARRAY[3, 2])", "[2, 3]"),
    FunctionSpec("ARRAY_UNION", "array ARRAY, other ARRAY", _same, "The elements of both arrays, each once.", "ARRAY_UNION(ARRAY[1, 2], ARRAY[2, 3])", "[1, 2, 3]"),
    FunctionSpec("ARRAY_JOIN", "array ARRAY, separator STRING [, null_text STRING]", STRING, "The elements as one text; NULLs are left out unless a text stands for them.", "ARRAY_JOIN(ARRAY['a', NULL, 'b'], '-', '?')", "'a-?-b'"),
    FunctionSpec("ARRAY_MAX", "array ARRAY", _element, "The greatest element.", "ARRAY_MAX(ARRAY[1, 4, 2])", "4"),
    FunctionSpec("ARRAY_MIN", "array ARRAY", _element, "The least element.", "ARRAY_MIN(ARRAY[3, 1, 2])", "1"),
    FunctionSpec("ARRAY_POSITION", "array ARRAY, element ELEMENT", INT, "Where the element stands first; 0: nowhere.", "ARRAY_POSITION(ARRAY['a', 'b'], 'b')", "2"),
    FunctionSpec("ARRAY_REMOVE", "array ARRAY, element ELEMENT", _same, "The array without the elements that are equal to it.", "ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", "[2]"),
    FunctionSpec("ARRAY_REVERSE", "array ARRAY", _same, "The array backward.", "ARRAY_REVERSE(ARRAY[1, 2])", "[2, 1]"),
    FunctionSpec("ARRAY_SLICE", "array ARRAY, start INT [, end INT]", _same, "The elements from one place to another; negative places count from the end.", "ARRAY_SLICE(ARRAY[1, 2, 3, 4], 2, 3)", "[2, 3]"),
    FunctionSpec("ARRAY_SORT", "array ARRAY [, ascending BOOLEAN [, nulls_first BOOLEAN]]", _same, "The array in order; NULLs are first if that is ascending, by default.", "ARRAY_SORT(ARRAY[2, 3, 1])", "[1, 2, 3]"),
    FunctionSpec("GENERATE_SERIES", "from INT, to INT [, step INT]", array_of(BIGINT), "The whole numbers from one below another (at most 10,000), as rows of LATERAL TABLE(...).", "GENERATE_SERIES(1, 4)", "[1, 2, 3]", Origin.BLINK),
    FunctionSpec("MAP_KEYS", "map MAP", _keys, "The keys.", "MAP_KEYS(MAP['a', 1])", "['a']"),
    FunctionSpec("MAP_VALUES", "map MAP", _values, "The values.", "MAP_VALUES(MAP['a', 1])", "[1]"),
    FunctionSpec("MAP_ENTRIES", "map MAP", _entries, "The entries, as rows of key and value.", "MAP_ENTRIES(MAP['a', 1])", "[('a', 1)]"),
    FunctionSpec("MAP_FROM_ARRAYS", "keys ANY_ARRAY, values ANY_ARRAY", _type_of_map, "A map of keys and values; NULL unless there are as many of both.", "MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[1, 2])", "{'a': 1, 'b': 2}"),
    FunctionSpec("MAP_UNION", "maps... MAP", _same, "The entries of all maps; the last value of a key counts.", "MAP_UNION(MAP['a', 1], MAP['a', 3, 'b', 2])", "{'a': 3, 'b': 2}"),
)  # fmt: skip
"""Their rows of the registry."""
