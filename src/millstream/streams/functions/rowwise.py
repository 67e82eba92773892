"""Registry functions as plain Python functions, for conditions evaluated row by row.

Values are as rows of operators have them: text, numbers, truth values; times are microseconds since 1970, dates are
days. All but `NULLABLE` are NULL where an argument is, which their caller sees to.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import Any

from millstream.streams.functions.calendar import in_other_zone
from millstream.streams.functions.text.json_text import (
    checked_json,
    json_exists,
    json_value,
    quoted_json,
    unquoted_json,
)
from millstream.streams.functions.text.log_lines import value_of_key
from millstream.streams.functions.text.networks import (
    in_networks,
    in_range,
    ip_of_number,
    is_ipv4,
    is_ipv6,
    is_private,
    network_of,
    number_of_ip,
    number_of_short_ip,
)
from millstream.streams.functions.text.patterns import (
    compile_pattern,
    first_match,
    match_count,
    match_position,
    matched_group,
    replace_matches,
)
from millstream.streams.functions.text.strings import capitalise, entropy, hash_code, nth_position
from millstream.streams.functions.text.user_agents import user_agent_part

__all__ = ["NULLABLE", "ROWWISE"]

_MAX_MADE_CHARACTERS = 1_000_000
_NO_REST = 2**31


def _substring(text: str, start: int, length: int = _NO_REST) -> str | None:
    """From a place on; a negative one counts from the end, and what lies before the text is blank."""
    if length < 0:
        return None
    if start < 0 and -start > len(text):
        return ""
    begin = len(text) + start if start < 0 else max(start, 1) - 1
    return text[begin : begin + length]


def _pad(text: str, length: int, filler: str, *, before: bool) -> str | None:
    if not filler or not 0 <= length <= _MAX_MADE_CHARACTERS:
        return None
    missing = length - len(text)
    if missing <= 0:
        return text[:length]
    added = (filler * (missing // len(filler) + 1))[:missing]
    return added + text if before else text + added


def _repeat_text(text: str, times: int) -> str | None:
    return text * max(times, 0) if len(text) * times <= _MAX_MADE_CHARACTERS else None


def _part(text: str, separator: str | int, place: int) -> str | None:
    by = chr(separator) if isinstance(separator, int) else separator
    parts = text.split(by) if by else re.split(r"\s", text)
    return parts[place] if text and 0 <= place < len(parts) else None


def _trim(text: str, characters: str = " ", side: str = "BOTH") -> str:
    return {"BOTH": text.strip, "LEADING": text.lstrip, "TRAILING": text.rstrip}[side.upper()](characters)


def _place(part: str, text: str, start: int = 1) -> int:
    return text.find(part, start - 1) + 1 if start > 0 else 0


def _instr(text: str, part: str, start: int = 1, occurrence: int = 1) -> int | None:
    return nth_position(text, part, start, occurrence)


def _overlaid(text: str, other: str, place: int, length: int | None = None) -> str:
    if not 0 < place <= len(text):
        return text
    part_size = len(other) if length is None else length
    return text[: place - 1] + other + text[place - 1 + part_size :]


def _matches(text: str, pattern: str) -> bool:
    found = compile_pattern(pattern) if pattern else None
    return found is not None and found.search(text) is not None


def _extract_group(text: str, pattern: str, group: int = 0) -> str | None:
    return matched_group(text, pattern, group)


def _json_value(document: str, path: str) -> str | None:
    return json_value(document, path, "STRING")


def _json_exists(document: str, path: str, on_error: str = "FALSE") -> bool | None:
    return json_exists(document, path, on_error)


def _base64_text(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    except ValueError:
        return None


def _digest(name: str) -> Callable[[str | bytes], str]:
    return lambda value: hashlib.new(name, _bytes_of(value), usedforsecurity=False).hexdigest()


def _bytes_of(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _whole(rounding: str, bound: Callable[[float], int]) -> Callable[[Any], Any]:
    def to_whole(number: Any) -> Any:
        if isinstance(number, Decimal):
            return number.to_integral_value(rounding)
        return float(bound(number)) if isinstance(number, float) and math.isfinite(number) else number

    return to_whole


def _build_rounding(rounding: str) -> Callable[..., Any]:
    def to_digits(number: Any, digits: int = 0) -> Any:
        exact = Decimal(str(number))
        if not exact.is_finite():
            return number
        cut = exact.quantize(Decimal(1).scaleb(-digits), rounding, _ALL_DIGITS) if digits < _MAX_SCALE else exact
        return cut if isinstance(number, Decimal) else type(number)(cut)

    return to_digits


_MAX_SCALE = 18
_ALL_DIGITS = Context(prec=400)
"""Takes any DOUBLE as digits: there are at most 309 before the point."""


def _number(compute: Callable[..., float]) -> Callable[..., float | None]:
    """A function of floats; None where it has no value."""

    def compute_or_none(*numbers: Any) -> float | None:
        try:
            return compute(*map(float, numbers))
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    return compute_or_none


def _logarithm(first: float, number: float | None = None) -> float:
    if number is None:
        return math.log(first)
    if first <= 1:
        raise ValueError(first)
    return math.log(number) / math.log(first)


def _distinct(left: Any, right: Any) -> bool:
    return left is not right if left is None or right is None else bool(left != right)


def _between(value: Any, low: Any, high: Any) -> bool | None:
    """FALSE where one bound says so, whatever the other is."""
    above = None if value is None or low is None else value >= low
    below = None if value is None or high is None else value <= high
    if above is False or below is False:
        return False
    return None if above is None or below is None else True


def _if(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


NULLABLE: dict[str, Callable[..., Any]] = {
    "BETWEEN": _between,
    "IF": _if,
    "NVL": lambda value, other: other if value is None else value,
    "NULLIF": lambda value, other: None if other is not None and value == other else value,
    "IS DISTINCT FROM": _distinct,
    "KEYVALUE": value_of_key,
}
"""Functions that take NULL as an argument."""

ROWWISE: dict[str, Callable[..., Any]] = {
    "SUBSTRING": _substring,
    "SUBSTR": _substring,
    "LEFT": lambda text, count: text[: max(count, 0)],
    "RIGHT": lambda text, count: text[-count:] if count > 0 else "",
    "TRIM": _trim,
    "BTRIM": _trim,
    "LTRIM": lambda text, characters=" ": text.lstrip(characters),
    "RTRIM": lambda text, characters=" ": text.rstrip(characters),
    "LPAD": lambda text, length, filler: _pad(text, length, filler, before=True),
    "RPAD": lambda text, length, filler: _pad(text, length, filler, before=False),
    "REPEAT": _repeat_text,
    "REVERSE": lambda text: text[::-1],
    "REPLACE": lambda text, part, other: text.replace(part, other) if part else text,
    "INITCAP": capitalise,
    "CHARACTER_LENGTH": len,
    "LENGTH": len,
    "POSITION": _place,
    "LOCATE": _place,
    "INSTR": _instr,
    "OVERLAY": _overlaid,
    "STARTSWITH": lambda value, start: value.startswith(start),
    "ENDSWITH": lambda value, end: value.endswith(end),
    "SPLIT_INDEX": _part,
    "CONVERT_TZ": in_other_zone,
    "REGEXP": _matches,
    "REGEXP_EXTRACT": _extract_group,
    "REGEXP_REPLACE": replace_matches,
    "REGEXP_COUNT": match_count,
    "REGEXP_INSTR": match_position,
    "REGEXP_SUBSTR": first_match,
    "MD5": _digest("md5"),
    "SHA1": _digest("sha1"),
    **{f"SHA{bits}": _digest(f"sha{bits}") for bits in (224, 256, 384, 512)},
    "TO_BASE64": lambda value: base64.b64encode(_bytes_of(value)).decode(),
    "FROM_BASE64": _base64_text,
    "HASH_CODE": lambda value: hash_code(str(value)),
    "JSON_VALUE": _json_value,
    "JSON_EXISTS": _json_exists,
    "JSON_QUOTE": quoted_json,
    "JSON_UNQUOTE": unquoted_json,
    "JSON": checked_json,
    "CEIL": _whole(ROUND_CEILING, math.ceil),
    "FLOOR": _whole(ROUND_FLOOR, math.floor),
    "ROUND": _build_rounding(ROUND_HALF_UP),
    "TRUNCATE": _build_rounding(ROUND_DOWN),
    "SIGN": lambda number: type(number)((number > 0) - (number < 0)),
    "SQRT": _number(math.sqrt),
    "POWER": _number(math.pow),
    "EXP": _number(math.exp),
    "LN": _number(math.log),
    "LOG": _number(_logarithm),
    "LOG10": _number(math.log10),
    "LOG2": _number(math.log2),
    "BITAND": lambda left, right: left & right,
    "BITOR": lambda left, right: left | right,
    "BITXOR": lambda left, right: left ^ right,
    "BITNOT": lambda number: ~number,
    "CIDR_MATCH": in_networks,
    "IP_IN_RANGE": in_range,
    "IS_PRIVATE_IP": is_private,
    "IS_IPV4": is_ipv4,
    "IS_IPV6": is_ipv6,
    "IP_NETWORK": network_of,
    "IP_TO_NUMBER": number_of_ip,
    "NUMBER_TO_IP": ip_of_number,
    "INET_ATON": number_of_short_ip,
    "INET_NTOA": ip_of_number,
    "USER_AGENT": user_agent_part,
    "ENTROPY": entropy,
}
"""Functions that are NULL where an argument is, by name."""
