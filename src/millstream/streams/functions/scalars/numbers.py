"""Arithmetic, bit operations, and number formatting."""

from __future__ import annotations

from millstream.streams.functions.casting import common_type
from millstream.streams.functions.spec import ArgumentTypes, FunctionSpec, Origin
from millstream.streams.plan.types import DOUBLE, INT, MAX_DIGITS, STRING, DataType, TypeKind

__all__ = ["NUMBERS"]

_BYTES = DataType(TypeKind.BYTES)


def _same(given: ArgumentTypes) -> DataType:
    return given.types[0]


def _type_of_rounding(given: ArgumentTypes) -> DataType:
    """Flink's type of ROUND and TRUNCATE: a DECIMAL keeps the digits that can be left."""
    first, digits = given.types[0], given.literal(1) if len(given.types) > 1 else 0
    if first.kind is not TypeKind.DECIMAL or not isinstance(digits, int):
        return first.as_nullable()
    precision, scale = first.precision or 10, first.scale or 0
    if digits >= scale:
        return first.as_nullable()
    whole = precision - scale + 1
    if digits < 0:
        return DataType(TypeKind.DECIMAL, precision=min(MAX_DIGITS, whole), scale=0)
    return DataType(TypeKind.DECIMAL, precision=min(MAX_DIGITS, whole + digits), scale=digits)


def _whole(given: ArgumentTypes) -> DataType:
    first = given.types[0]
    if len(given.types) > 1:
        if not first.is_timestamp and first.kind not in (TypeKind.DATE, TypeKind.TIME, TypeKind.NULL):
            raise TypeError("a time before TO")
        return first
    if not first.is_number and first.kind is not TypeKind.NULL:
        raise TypeError("a number, or a time with TO unit")
    return DataType(TypeKind.DECIMAL, precision=first.precision, scale=0) if first.kind is TypeKind.DECIMAL else first


def _second(given: ArgumentTypes) -> DataType:
    return given.types[1]


def _wider(given: ArgumentTypes) -> DataType:
    return common_type(given.types)


_SINGLE = (
    ("SQRT", "The square root.", "SQRT(9)", "3.0"),
    ("EXP", "e to the power of the number.", "EXP(0)", "1.0"),
    ("LN", "The natural logarithm; NULL of 0 and below.", "LN(1)", "0.0"),
    ("LOG10", "The logarithm to the base 10.", "LOG10(100)", "2.0"),
    ("LOG2", "The logarithm to the base 2.", "LOG2(8)", "3.0"),
    ("SIN", "The sine.", "SIN(0)", "0.0"),
    ("SINH", "The hyperbolic sine.", "SINH(0)", "0.0"),
    ("COS", "The cosine.", "COS(0)", "1.0"),
    ("COSH", "The hyperbolic cosine.", "COSH(0)", "1.0"),
    ("TAN", "The tangent.", "TAN(0)", "0.0"),
    ("TANH", "The hyperbolic tangent.", "TANH(0)", "0.0"),
    ("COT", "The cotangent.", "ROUND(COT(1), 4)", "0.6421"),
    ("ASIN", "The arc sine.", "ASIN(0)", "0.0"),
    ("ACOS", "The arc cosine.", "ACOS(1)", "0.0"),
    ("ATAN", "The arc tangent.", "ATAN(0)", "0.0"),
    ("DEGREES", "Radians as degrees.", "DEGREES(PI())", "180.0"),
    ("RADIANS", "Degrees as radians.", "ROUND(RADIANS(180), 4)", "3.1416"),
)

NUMBERS: tuple[FunctionSpec, ...] = (
    *(FunctionSpec(name, "number NUMBER", DOUBLE, words, example, result) for name, words, example, result in _SINGLE),
    FunctionSpec("ABS", "number NUMBER", _same, "Without the sign.", "ABS(-3)", "3"),
    FunctionSpec("CEIL", "value ANY [, unit STRING]", _whole, "The next whole number, or the next bound of a unit of time.", "CEIL(1.2)", "2", spelled="CEIL(number), CEIL(time TO unit), CEILING likewise"),
    FunctionSpec("FLOOR", "value ANY [, unit STRING]", _whole, "The whole number below, or the bound of a unit of time.", "FLOOR(-1.2)", "-2", spelled="FLOOR(number), FLOOR(time TO unit)"),
    FunctionSpec("ROUND", "number NUMBER [, digits INT]", _type_of_rounding, "Rounded to digits behind the point.", "ROUND(1.256, 2)", "1.26"),
    FunctionSpec("TRUNCATE", "number NUMBER [, digits INT]", _type_of_rounding, "Cut to digits behind the point.", "TRUNCATE(42.324, 2)", "42.32"),
    FunctionSpec("POWER", "base NUMBER, exponent NUMBER", DOUBLE, "The first to the power of the second.", "POWER(2, 10)", "1024.0"),
    FunctionSpec("LOG", "base_or_number NUMBER [, number NUMBER]", DOUBLE, "The natural logarithm, or that to a base.", "LOG(2, 8)", "3.0", spelled="LOG([base, ]number)"),
    FunctionSpec("ATAN2", "y NUMBER, x NUMBER", DOUBLE, "The angle of a point.", "ATAN2(0, 1)", "0.0"),
    FunctionSpec("PI", "", DOUBLE.as_nullable(False), "The number pi.", "ROUND(PI(), 5)", "3.14159"),
    FunctionSpec("E", "", DOUBLE.as_nullable(False), "The number e.", "ROUND(E(), 5)", "2.71828"),
    FunctionSpec("MOD", "number NUMBER, divisor NUMBER", _second, "The rest of a division, with the sign of the number; NULL by 0.", "MOD(-7, 3)", "-1"),
    FunctionSpec("SIGN", "number NUMBER", _same, "-1, 0 or 1.", "SIGN(-5)", "-1"),
    FunctionSpec("RAND", "[seed INT]", DOUBLE.as_nullable(False), "A random number from 0 up to 1.", "RAND() < 1", "TRUE", deterministic=False),
    FunctionSpec("RAND_INTEGER", "bound INT [, seeded_bound INT]", INT.as_nullable(False), "A random whole number from 0 up to a bound.", "RAND_INTEGER(1)", "0", deterministic=False, spelled="RAND_INTEGER([seed, ]bound)"),
    FunctionSpec("UUID", "", STRING.as_nullable(False), "A random UUID.", "CHAR_LENGTH(UUID())", "36", deterministic=False),
    FunctionSpec("BIN", "number INT", STRING, "The number in binary digits.", "BIN(12)", "'1100'"),
    FunctionSpec("HEX", "value HEXABLE", STRING, "The number, or the bytes of a text or of BYTES, in hexadecimal digits.", "HEX(100)", "'64'"),
    FunctionSpec("UNHEX", "text STRING", _BYTES, "The bytes of hexadecimal digits; NULL if they are none.", "DECODE(UNHEX('4D7953514C'), 'UTF-8')", "'MySQL'"),
    FunctionSpec("BITAND", "left INT, right INT", _wider, "The bits that are set in both.", "BITAND(6, 3)", "2", Origin.BLINK),
    FunctionSpec("BITOR", "left INT, right INT", _wider, "The bits that are set in either.", "BITOR(6, 3)", "7", Origin.BLINK),
    FunctionSpec("BITXOR", "left INT, right INT", _wider, "The bits that are set in one of both.", "BITXOR(6, 3)", "5", Origin.BLINK),
    FunctionSpec("BITNOT", "number INT", _same, "Each bit turned over.", "BITNOT(7)", "-8", Origin.BLINK),
)  # fmt: skip
"""Their rows of the registry."""
