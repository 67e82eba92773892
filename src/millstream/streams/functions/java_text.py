"""Numbers as Java writes them."""

from __future__ import annotations

import math

__all__ = ["java_double"]

_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7


def java_double(value: float) -> str:
    """The text of a DOUBLE: `1.0E10` where Python has `10000000000.0`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value)
    mantissa, exponent = _scientific(value)
    return f"{mantissa}E{exponent}"


def _scientific(value: float) -> tuple[str, int]:
    sign = "-" if value < 0 else ""
    digits, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0) + len(whole) - 1
    figures = whole + fraction
    leading = len(figures) - len(figures.lstrip("0"))
    power -= leading
    figures = figures.lstrip("0").rstrip("0")
    return f"{sign}{figures[0]}.{figures[1:] or '0'}", power
