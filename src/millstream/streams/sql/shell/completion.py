"""Completion at the cursor: keywords, session names, functions, settings and options.

What may stand in a hint, between /*+ and */: the hints of that place, their keys, and values that are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS, WINDOW_FUNCTIONS
from millstream.streams.plan.types import Field
from millstream.streams.sql.catalog.catalog import Catalog
from millstream.streams.sql.options.settings import SETTINGS
from millstream.streams.sql.parser.cursor import RESERVED
from millstream.streams.sql.parser.names import MAX_NAME_PARTS, QUERY_HINTS, TABLE_HINTS
from millstream.streams.sql.parser.statement_parser import FIRST_WORDS

__all__ = ["LOOKUP_KEYS", "Candidate", "Completions", "complete", "complete_hint"]

LOOKUP_KEYS = ("table", "async", "output-mode", "capacity", "timeout", "retry-predicate", "retry-strategy",
               "fixed-delay", "max-attempts")  # fmt: skip
"""The keys that a LOOKUP hint has in Flink."""

_VALUES: Mapping[str, tuple[str, ...]] = {
    "async": ("true", "false"),
    "output-mode": ("ordered", "allow_unordered"),
    "retry-predicate": ("lookup_miss",),
    "retry-strategy": ("fixed_delay",),
}


def complete_hint(
    words: Sequence[str], *, behind_select: bool, in_string: bool, names: Sequence[str], options: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Candidates and their kinds behind the `words` of an open hint.

    `names` are the tables and aliases of FROM, `options` those of the table that OPTIONS stands behind.
    """
    opened = max((place for place, word in enumerate(words) if word == "("), default=0)
    name = words[opened - 1].upper() if opened and ")" not in words[opened:] else ""
    if not name:
        if not in_string:
            yield from ((f"{hint}(", "keyword") for hint in (QUERY_HINTS if behind_select else TABLE_HINTS))
        return
    if name in ("OPTIONS", "LOOKUP") and in_string:
        yield from _pairs(name, words[opened + 1 :], names, options)
    elif in_string == (name == "STATE_TTL") and words[-1] != "=":
        yield from ((table, "table") for table in names)


def _pairs(
    name: str, words: Sequence[str], names: Sequence[str], options: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Keys of OPTIONS and LOOKUP, and behind an = the values that a key may have."""
    connector = CONNECTORS.get(options.get("connector", ""))
    if words[-1:] != ["="]:
        given = {word.strip("'") for word in words}
        known = LOOKUP_KEYS if name == "LOOKUP" else [option.name for option in connector.options] if connector else []
        yield from ((key, "option") for key in known if key not in given)
        return
    key = words[-2].strip("'") if len(words) > 1 else ""
    if name == "LOOKUP":
        values: Sequence[str] = names if key == "table" else _VALUES.get(key, ())
    else:
        option = connector.find(key) if connector is not None else None
        values = option.choices if option is not None else ()
    yield from ((value, "table" if key == "table" else "value") for value in values)


_WORDS = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|`(?:[^`]|``)*`|[\w$]+|[^\s\w]", re.DOTALL)
_PREFIX = re.compile(r"[\w$]*$")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_NAMES = ("table", "view", "column", "database", "catalog")
"""Kinds of candidates that are the user's own names."""

_AFTER: Mapping[str, tuple[str, ...]] = {
    "CREATE": ("TABLE", "VIEW", "TEMPORARY", "OR REPLACE", "FUNCTION", "DATABASE", "CATALOG", "MODEL"),
    "TEMPORARY": ("TABLE", "VIEW", "FUNCTION", "SYSTEM FUNCTION"),
    "DROP": ("TABLE", "VIEW", "TEMPORARY", "FUNCTION", "DATABASE", "CATALOG", "MODEL"),
    "ALTER": ("TABLE", "VIEW"),
    "INSERT": ("INTO", "OVERWRITE"),
    "EXECUTE": ("STATEMENT SET", "INSERT INTO"),
    "BEGIN": ("STATEMENT SET",),
    "EXPLAIN": ("PLAN FOR", "CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "SELECT", "INSERT INTO",
                "STATEMENT SET"),
    "SHOW": ("TABLES", "VIEWS", "FUNCTIONS", "USER FUNCTIONS", "CATALOGS", "DATABASES", "CREATE TABLE", "CREATE VIEW",
             "CREATE CATALOG", "COLUMNS FROM", "PARTITIONS", "CURRENT CATALOG", "CURRENT DATABASE", "JOBS", "MODELS"),
    "STOP": ("JOB",),
    "GROUP": ("BY",),
    "ORDER": ("BY",),
    "PARTITION": ("BY",),
}  # fmt: skip
"""What goes on behind a word."""

_BEFORE_NAMES = ("FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "VIEW", "DESCRIBE", "DESC", "LIKE", "PARTITIONS")
"""Words behind which a table or a view stands."""

_CLAUSES = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN",
    "INNER JOIN", "FULL JOIN", "CROSS JOIN", "ON", "USING", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "AS",
    "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END",
    "CAST", "TRY_CAST", "EXISTS", "INTERVAL", "OVER", "PARTITION BY", "FOR SYSTEM_TIME AS OF", "LATERAL TABLE",
    "UNNEST", "MATCH_RECOGNIZE", "MEASURES", "PATTERN", "DEFINE", "AFTER MATCH SKIP", "ONE ROW PER MATCH",
    "WITHIN", "TUMBLE", "HOP", "SESSION", "CUMULATE", "DESCRIPTOR", "VALUES", "EMIT WITH DELAY",
    "EMIT WITHOUT DELAY", "BEFORE WATERMARK", "AFTER WATERMARK", "WATERMARK FOR", "PRIMARY KEY",
    "NOT ENFORCED", "METADATA FROM", "VIRTUAL", "WITH", "COMMENT", "PARTITIONED BY", "IF NOT EXISTS",
)  # fmt: skip


_CALLED = tuple(name for name in (*FUNCTIONS, *AGGREGATES, *WINDOW_FUNCTIONS) if name.isidentifier())
"""Functions that are written with brackets."""

_OWN_CALLS = frozenset(f"{name}(" for name in _CALLED)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One completion.

    `kind` is keyword, table, view, column, database, catalog, function, setting, option or value.
    """

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Completions:
    """Candidates in the place of what stands from `start` to the cursor, in order."""

    start: int
    candidates: tuple[Candidate, ...]


def complete(text: str, cursor: int, catalog: Catalog) -> Completions:
    """What the word at the cursor may become. Nothing inside of comments and strings that are no setting or option."""
    before = text[:cursor]
    if (hint := _open_hint(before)) is not None:
        return _in_hint(before, hint, text[cursor:], catalog)
    if _in_comment(before):
        return Completions(cursor, ())
    statement, quoted = _statement(before)
    if quoted is not None:
        return _rank(cursor - len(quoted), quoted, _in_string(statement))
    if statement and statement[-1].startswith("`") and not _ENDED_NAME.fullmatch(statement[-1]):
        return _in_name(statement, cursor, catalog, _rest(text[cursor:]))
    prefix = _PREFIX.search(before)
    typed = prefix[0] if prefix else ""
    done = statement[:-1] if typed and statement and statement[-1] == typed else statement
    return _rank(cursor - len(typed), typed, _candidates(done, catalog, _rest(text[cursor:])))


def _rest(behind: str) -> list[str]:
    """The words from the cursor to the end of the statement."""
    words = [match[0] for match in _WORDS.finditer(behind)]
    return words[: words.index(";")] if ";" in words else words


def _statement(before: str) -> tuple[list[str], str | None]:
    """The words since the last semicolon, and the open string behind them, None if no string is open."""
    words: list[str] = []
    for match in _WORDS.finditer(before):
        word = match[0]
        if word == "'":
            return words, before[match.end() :]
        if word == "`":
            return [*words, before[match.start() :]], None
        if word == ";":
            words = []
        elif not word.startswith(("--", "/*")):
            words.append(word)
    return words, None


_ENDED_NAME = re.compile(r"`(?:[^`]|``)*`")


def _in_name(statement: list[str], cursor: int, catalog: Catalog, behind: list[str]) -> Completions:
    """What the name in back-ticks may become that the statement ends with."""
    typed = statement[-1]
    found = _candidates(statement[:-1], catalog, behind)
    names = (of for of in found if of.kind in _NAMES and "." not in of.text)
    return _rank(cursor - len(typed), typed, (Candidate(_back_ticks(of.text), of.kind) for of in names))


def _back_ticks(name: str) -> str:
    return name if name.startswith("`") else f"`{name}`"


def _name(name: str, kind: str) -> Candidate:
    """A name as it has to be written: one that would be read as something else stands in back-ticks."""
    plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in RESERVED
    return Candidate(name if plain else "`{}`".format(name.replace("`", "``")), kind)


def _in_comment(before: str) -> bool:
    """Whether the text ends inside of a comment."""
    last = ""
    for match in _WORDS.finditer(before):
        if match[0] == "/" and before.startswith("/*", match.start()):
            return True
        last = match[0] if match.end() == len(before) else ""
    return last.startswith("--")


def _open_hint(before: str) -> int | None:
    """Where the text of a hint begins that is not closed yet; None outside of hints."""
    start = before.rfind("/*+")
    if start < 0 or "*/" in before[start:] or _statement(before[:start])[1] is not None:
        return None
    return None if _in_comment(before[:start]) else start + len("/*+")


def _in_hint(before: str, start: int, behind: str, catalog: Catalog) -> Completions:
    """What may stand in the hint whose text begins at `start`."""
    outside, _ = _statement(before[: start - len("/*+")])
    inside, quoted = _statement(before[start:])
    typed = quoted
    if typed is None:
        typed = (_PREFIX.search(before) or [""])[0]
        inside = inside[:-1] if typed and inside and inside[-1] == typed else inside
    named = _aliases([*outside, *_rest(behind.partition("*/")[2])])
    full = catalog.full_name((outside[-1].strip("`"),)) if outside else None
    found = complete_hint(
        inside,
        behind_select=not outside or outside[-1].upper() == "SELECT",
        in_string=quoted is not None,
        names=list(named),
        options=catalog.tables[full].table.options if full in catalog.tables else {},
    )
    return _rank(len(before) - len(typed), typed, (Candidate(text, kind) for text, kind in found))


def _rank(start: int, typed: str, candidates: Iterable[Candidate]) -> Completions:
    """Those that begin with what is typed, in any case of letters, each once.

    Names keep theirs; the language's own words, where case makes no difference, take that of what is typed.
    """
    small = typed != typed.upper() and typed == typed.lower()
    plain = typed.lower()
    kept: dict[str, Candidate] = {}
    for of in candidates:
        text = of.text.lower() if small and (of.kind == "keyword" or of.text in _OWN_CALLS) else of.text
        begins = text.lower().startswith(plain) or text.lower().removeprefix("`").startswith(plain)
        if begins and text != typed:
            kept.setdefault(text, Candidate(text, of.kind))
    return Completions(start, tuple(sorted(kept.values(), key=lambda of: (of.kind == "keyword", of.text.lower()))))


def _in_string(words: list[str]) -> Iterator[Candidate]:
    """Names and values in quotes: settings behind SET, options and their values behind WITH."""
    upper = [word.upper() for word in words]
    if upper[:1] in (["SET"], ["RESET"]):
        if len(words) == 1:
            yield from (Candidate(name, "setting") for name in SETTINGS)
        elif upper[-1] == "=":
            setting = SETTINGS.get(words[1].strip("'"))
            if setting is not None and re.fullmatch(r"[\w|]+", setting.pattern):
                yield from (Candidate(value, "value") for value in setting.pattern.split("|"))
    elif "WITH" in upper and "CREATE" in upper:
        yield from _options(words[len(upper) - upper[::-1].index("WITH") :])


def _options(words: list[str]) -> Iterator[Candidate]:
    named = {
        words[place - 1].strip("'"): words[place + 1].strip("'")
        for place, word in enumerate(words)
        if word == "=" and 0 < place < len(words) - 1
    }
    connector = CONNECTORS.get(named.get("connector", ""))
    if words[-1:] == ["="]:
        key = words[-2].strip("'") if len(words) > 1 else ""
        option = connector.find(key) if connector is not None else None
        choices = CONNECTORS if key == "connector" else option.choices if option is not None else ()
        yield from (Candidate(value, "value") for value in choices)
        return
    if connector is None:
        yield Candidate("connector", "option")
        return
    yield from (Candidate(option.name, "option") for option in connector.options if option.name not in named)


def _candidates(words: list[str], catalog: Catalog, behind: list[str]) -> Iterator[Candidate]:
    """What may stand behind the words of a statement."""
    last = words[-1].upper() if words else ""
    if not words:
        yield from (Candidate(word, "keyword") for word in FIRST_WORDS)
    elif last == "." and len(words) > 1:
        yield from _members(words, catalog, behind)
    elif words[0].upper() in ("SET", "RESET"):
        if len(words) == 1:
            yield from (Candidate(f"'{name}'", "setting") for name in SETTINGS)
    elif last in _AFTER:
        yield from (Candidate(word, "keyword") for word in _AFTER[last])
    elif last in ("USE", "DATABASE"):
        yield from (_name(name, "database") for name in sorted(catalog.databases[catalog.current[0]]))
    elif last == "CATALOG":
        yield from (_name(name, "catalog") for name in catalog.databases)
    elif last in _BEFORE_NAMES:
        yield from _relations(catalog)
        if last in ("FROM", "JOIN"):
            yield from (Candidate(word, "keyword") for word in ("TABLE", "LATERAL TABLE", "UNNEST"))
    else:
        yield from _columns_of_statement([*words, *behind], catalog)
        yield from (Candidate(f"{name}(", "function") for name in _CALLED)
        yield from (Candidate(name[2], "function") for name in catalog.functions)
        yield from (Candidate(word, "keyword") for word in _CLAUSES)


def _relations(catalog: Catalog) -> Iterator[Candidate]:
    for kind, names in (("table", catalog.tables), ("view", catalog.views)):
        for name in names:
            parts = name[2:] if name[:2] == catalog.current else name[1:]
            yield Candidate(".".join(_name(part, kind).text for part in parts), kind)


def _members(words: list[str], catalog: Catalog, behind: list[str]) -> Iterator[Candidate]:
    """Columns of a table or alias, fields of a ROW column, tables of a database."""
    qualifier = words[-2].strip("`")
    named = _aliases([*words, *behind])
    yield from (_name(name, "column") for name in _columns(named.get(qualifier, (qualifier,)), catalog))
    for parts in named.values():
        for of in _fields(parts, catalog):
            if of.name == qualifier:
                yield from (_name(member.name, "column") for member in of.type.fields)
    if qualifier in catalog.databases[catalog.current[0]]:
        for kind, names in (("table", catalog.tables), ("view", catalog.views)):
            yield from (_name(name[2], kind) for name in names if name[:2] == (catalog.current[0], qualifier))


def _columns_of_statement(words: list[str], catalog: Catalog) -> Iterator[Candidate]:
    """Columns of what the statement reads; of all tables and views where nothing that it names is known yet."""
    found = {alias: columns for alias, parts in _aliases(words).items() if (columns := _columns(parts, catalog))}
    for alias, columns in found.items():
        yield from (_name(name, "column") for name in columns)
        yield _name(alias, "table")
    if not found and words[0].upper() == "SELECT" and "FROM" not in map(str.upper, words):
        for path in (*catalog.tables, *catalog.views):
            yield from (_name(name, "column") for name in _columns(path, catalog))


def _aliases(words: list[str]) -> dict[str, tuple[str, ...]]:
    """What stands behind FROM, JOIN and INTO, by alias or name."""
    found: dict[str, tuple[str, ...]] = {}
    for place, word in enumerate(words):
        if word.upper() not in ("FROM", "JOIN", "INTO", "TABLE", ",") or place + 1 >= len(words):
            continue
        if word == "," and words[place + 1].upper() in _ENDS:
            # The comma behind which the cursor stands; its list goes on with a clause.
            continue
        end = place + 1
        parts = [words[end].strip("`")]
        while end + 2 < len(words) and words[end + 1] == ".":
            end += 2
            parts.append(words[end].strip("`"))
        alias = words[end + 2] if end + 2 < len(words) and words[end + 1].upper() == "AS" else ""
        if not alias and end + 1 < len(words) and words[end + 1].upper() not in _ENDS:
            alias = words[end + 1]
        name = alias.strip("`") if re.fullmatch(r"`.+`|[^\W\d]\w*", alias) else parts[-1]
        found.setdefault(name, tuple(parts))
    return found


_ENDS = frozenset(word for clause in _CLAUSES for word in clause.split())


def _fields(parts: tuple[str, ...], catalog: Catalog) -> tuple[Field, ...]:
    full = catalog.full_name(parts) if len(parts) <= MAX_NAME_PARTS else None
    if full in catalog.tables:
        return catalog.tables[full].table.schema.fields
    return catalog.views[full].node.schema.fields if full in catalog.views else ()


def _columns(parts: tuple[str, ...], catalog: Catalog) -> list[str]:
    return [of.name for of in _fields(parts, catalog)]
