"""The prompt: reads lines with history and completion until a statement is complete."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millstream.cli.streams.sql_shell.interrupts import Interrupts
from millstream.store.files import FileLayer
from millstream.streams.state.atomic_file import write_file

__all__ = [
    "MAX_STATEMENTS",
    "MAX_STATEMENT_CHARACTERS",
    "Completer",
    "Found",
    "History",
    "LineEditor",
    "TypedText",
    "endings",
    "history_path",
    "split_statements",
]


MAX_STATEMENTS = 1_000
"""Statements of the history at most; the oldest go."""

MAX_STATEMENT_CHARACTERS = 16_384
"""A longer statement is not kept."""


def history_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's history, by the rules for such files on Linux."""
    home = environment.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "millstream" / "sql_history"


class History:
    """What was typed, the oldest first. A file that cannot be read or written only costs the memory of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.statements: list[str] = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):
                    statement = json.loads(line)
                    if isinstance(statement, str):
                        self.statements.append(statement)
        del self.statements[:-MAX_STATEMENTS]

    def add(self, statement: str) -> bool:
        """Keep a statement; whether it is new: not the last one again, not too long, without secrets."""
        if not statement.strip() or len(statement) > MAX_STATEMENT_CHARACTERS or _has_secret(statement):
            return False
        if self.statements[-1:] == [statement]:
            return False
        self.statements.append(statement)
        del self.statements[:-MAX_STATEMENTS]
        with contextlib.suppress(OSError):
            lines = "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in self.statements)
            # Nobody waits for the disk after each statement.
            write_file(self._path, lines.encode(), durable=False, files=FileLayer())
        return True


def _has_secret(statement: str) -> bool:
    from millstream.streams.connectors.registry import CONNECTORS

    secret = (option for connector in CONNECTORS.values() for option in connector.options if option.secret)
    return any(name.lower() in statement.lower() for name in {option.name.partition("#")[0] for option in secret})


_PIECE = re.compile(r"--[^\n]*|/\*.*?\*/|/\*|'(?:[^']|'')*'|`(?:[^`]|``)*`|[\w$]+|\s+|.", re.DOTALL)
_OPENERS = ("'", "`", "/*")
_SET_BEGINNINGS = (["BEGIN", "STATEMENT", "SET"], ["EXECUTE", "STATEMENT", "SET", "BEGIN"])
_EXPLAIN = "EXPLAIN"


@dataclass(frozen=True, slots=True)
class TypedText:
    """`statements` are whole, without their semicolons; `rest` is what is not ended yet, blank where nothing is."""

    statements: tuple[str, ...]
    rest: str


def split_statements(text: str) -> TypedText:
    """Split at each semicolon that ends a statement: not inside of quotes, comments and statement sets."""
    statements: list[str] = []
    start, depth = 0, 0
    words: list[str] = []
    for match in _PIECE.finditer(text):
        piece = match[0]
        if piece in _OPENERS:
            # Everything behind an open quote or comment belongs to it.
            return TypedText(tuple(statements), text[start:])
        if piece.isspace() or piece.startswith(("--", "/*")):
            continue
        if piece == ";" and depth == 0:
            if words:
                statements.append(text[start : match.start()].strip())
            start, words = match.end(), []
            continue
        words.append(piece.upper())
        depth = _depth(words, depth)
    return TypedText(tuple(statements), text[start:] if words else "")


def _depth(words: list[str], depth: int) -> int:
    """How many ENDs the statement waits for after its last word; only statement sets wait."""
    statement_words = words[1:] if words[0] == _EXPLAIN else words
    if statement_words in _SET_BEGINNINGS:
        return 1
    if depth and statement_words[-1] == "CASE":
        return depth + 1
    return depth - 1 if depth and statement_words[-1] == "END" else depth


PROMPT = "millstream> "
GOES_ON = "        ... "

Found = tuple[int, list[str]]
"""Where in the text the word begins that a completion replaces, and what may stand in its place."""

Completer = Callable[[str, int], Found]

SHELL_WORDS = ("QUIT", "EXIT", "HELP", "CLEAR")
"""What the shell itself understands, with a semicolon or without."""


class _ReadLine(Protocol):
    def get_begidx(self) -> int: ...
    def get_endidx(self) -> int: ...
    def get_line_buffer(self) -> str: ...


class LineEditor:
    """Reads statements from the terminal."""

    def __init__(self, history: History, complete: Completer, interrupts: Interrupts) -> None:
        self._history = history
        self._complete = complete
        self._interrupts = interrupts
        self._above = ""
        self._waiting: list[str] = []
        self._add: Callable[[str], object] = lambda _statement: None
        self._set_up()

    def statement(self) -> str:
        """The next statement, without its semicolon. Raises KeyboardInterrupt at Ctrl-C, EOFError at Ctrl-D."""
        while not self._waiting:
            self._waiting = self._read_statements()
        return self._waiting.pop(0)

    def _read_statements(self) -> list[str]:
        self._above = ""
        while True:
            with self._interrupts.reading():
                line = input(GOES_ON if self._above else PROMPT)
            if not self._above and line.strip().rstrip(";").strip().upper() in SHELL_WORDS:
                return [line.strip().rstrip(";").strip()]
            typed = split_statements(f"{self._above}{line}\n")
            if not typed.rest:
                whole = f"{self._above}{line}".strip()
                if typed.statements and self._history.add(whole):
                    self._add(whole)
                return list(typed.statements)
            self._above += f"{line}\n"

    def _set_up(self) -> None:
        try:
            import readline
        except ImportError:  # Python was built without it: lines can be typed, no more.
            return
        readline.set_auto_history(False)
        readline.clear_history()
        for statement in self._history.statements:
            readline.add_history(statement)
        self._add = readline.add_history
        found: list[str] = []

        def candidate(_word: str, number: int) -> str | None:
            if number == 0:
                found[:] = self._endings(readline)
            return found[number] if number < len(found) else None

        readline.set_completer(candidate)
        # Editline, which stands for readline in some builds, has another language.
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")

    def _endings(self, readline: _ReadLine) -> list[str]:
        line = readline.get_line_buffer()
        start, words = self._complete(self._above + line, len(self._above) + readline.get_endidx())
        return endings(line, readline.get_begidx(), start - len(self._above), words)


def endings(line: str, begin: int, start: int, words: list[str]) -> list[str]:
    """What may stand from `begin`, where the editor thinks that the word begins, for words that begin at `start`.

    A word that began in a line above has none.
    """
    if start < 0:
        return []
    if start >= begin:
        return [line[begin:start] + word for word in words]
    typed = line[start:begin]
    return [word[len(typed) :] for word in words if word.lower().startswith(typed.lower())]
