"""Secrets in job definitions: warned about on submission, and masked in all output.

What a secret is follows from the names of options and settings, see `streams.secrets`. A script that refers to the
environment (`'password' = '${env:NAME}'`) has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from millstream.streams.secrets import HIDDEN, hide_secrets, secret_spans

__all__ = ["MIN_SECRET_CHARACTERS", "hide_in", "hide_spans", "secrets_in", "warn_of_secrets"]

MIN_SECRET_CHARACTERS: Final = 4
"""Characters of the shortest secret that is looked for in messages and logs; a shorter one may be part of any word."""

_MAX_NAMED_LINES: Final = 5


def hide_spans(text: str) -> str:
    """The text of a script without the secrets in it."""
    parts, place = [], 0
    for start, end in secret_spans(text):
        parts += [text[place:start], HIDDEN]
        place = end
    return "".join([*parts, text[place:]])


def secrets_in(text: str, settings: Mapping[str, str]) -> list[str]:
    """The secrets of a job that messages may quote."""
    texts = [text, *(_as_option(name, value) for name, value in settings.items())]
    found = [one[start:end] for one in texts for start, end in secret_spans(one)]
    return [secret for secret in found if len(secret) >= MIN_SECRET_CHARACTERS]


def hide_in(shown: Any, secrets: Sequence[str]) -> Any:
    """What is shown of a job, in JSON's types, without the secrets; values of settings by their names as well."""
    if isinstance(shown, str):
        return hide_secrets(shown, secrets)
    if isinstance(shown, Mapping):
        return {name: _hide_value(name, value, secrets) for name, value in shown.items()}
    if isinstance(shown, list | tuple):
        return [hide_in(value, secrets) for value in shown]
    return shown


def warn_of_secrets(text: str, settings: Mapping[str, str]) -> list[str]:
    """One sentence where a job has secrets that stand in it as they are; none where it has not."""
    lines = list(dict.fromkeys(text.count("\n", 0, start) + 1 for start, _ in secret_spans(text)))
    names = [name for name, value in settings.items() if secret_spans(_as_option(name, value))]
    places = [*(f"line {line}" for line in lines), *names]
    if not places:
        return []
    more = f" and {len(places) - _MAX_NAMED_LINES} more" if len(places) > _MAX_NAMED_LINES else ""
    words = (
        f"The job has secrets as plain text ({', '.join(places[:_MAX_NAMED_LINES])}{more}). "
        "Who reads the topic of jobs reads them. Write '${env:NAME}' in the option, "
        "and set the variable where the job server runs."
    )
    return [words]


def _hide_value(name: str, value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str) and secret_spans(_as_option(name, value)):
        text = hide_spans(_as_option(name, value))
        return text[len(_as_option(name, "")) - 1 : -1].replace("''", "'")
    return hide_in(value, secrets)


def _as_option(name: str, value: str) -> str:
    """A setting as a table's option is written."""
    quoted: Iterable[str] = (part.replace("'", "''") for part in (name, value))
    return "'{}' = '{}'".format(*quoted)
