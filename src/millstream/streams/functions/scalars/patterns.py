"""Regular expressions, in Java's syntax. A wrong one gives NULL, or FALSE where a condition is asked for."""

from __future__ import annotations

from millstream.streams.functions.spec import FunctionSpec, array_of
from millstream.streams.plan.types import BOOLEAN, INT, STRING

__all__ = ["PATTERNS"]

PATTERNS: tuple[FunctionSpec, ...] = (
    FunctionSpec("REGEXP", "text STRING, pattern STRING", BOOLEAN, "Whether the pattern matches somewhere.", "REGEXP('abc', 'b.')", "TRUE"),
    FunctionSpec("REGEXP_EXTRACT", "text STRING, pattern STRING [, group INT]", STRING, "What a group (0, all, unless given) of the first match holds.", "REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "'bar'"),
    FunctionSpec("REGEXP_REPLACE", "text STRING, pattern STRING, other STRING", STRING, "The text with each match replaced; $ and \\ in the replacement are plain.", "REGEXP_REPLACE('foobar', 'oo|ar', '')", "'fb'"),
    FunctionSpec("REGEXP_COUNT", "text STRING, pattern STRING", INT, "How often the pattern matches.", "REGEXP_COUNT('abcabc', 'b')", "2"),
    FunctionSpec("REGEXP_EXTRACT_ALL", "text STRING, pattern STRING [, group INT]", array_of(STRING), "What a group (1 unless given, 0: all) of each match holds.", "REGEXP_EXTRACT_ALL('a1b2', '[a-z]([0-9])')", "['1', '2']"),
    FunctionSpec("REGEXP_INSTR", "text STRING, pattern STRING", INT, "Where the first match begins; 0: nowhere.", "REGEXP_INSTR('abc12', '[0-9]')", "4"),
    FunctionSpec("REGEXP_SUBSTR", "text STRING, pattern STRING", STRING, "The first match; NULL if there is none.", "REGEXP_SUBSTR('abc12', '[0-9]+')", "'12'"),
)  # fmt: skip
"""Their rows of the registry."""
