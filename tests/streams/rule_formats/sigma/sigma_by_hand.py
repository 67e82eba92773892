"""A second, slow reading of Sigma by its specification: straight from YAML, without pySigma and without formulas.

It also makes up events from the values of a rule, since most real rules fit no event that is at hand.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from random import Random
from typing import Any

Fields = Mapping[str, str]

DASHES = "-/–—―"


def fits(detection: Mapping[str, Any], fields: Fields) -> bool:
    """Whether an event with these fields fits the detection section; its log source is not looked at."""
    condition = detection["condition"]
    conditions = condition if isinstance(condition, list) else [condition]
    named = {name: value for name, value in detection.items() if name not in ("condition", "timeframe")}
    return any(_Condition(one, lambda name: _selected(named[name], fields), list(named)).holds() for one in conditions)


class _Condition:
    """A condition, read by recursive descent and answered at once."""

    def __init__(self, text: str, selected: Callable[[str], bool], names: list[str]) -> None:
        self._words = re.findall(r"[()]|[^\s()]+", text)
        self._selected = selected
        self._names = names

    def holds(self) -> bool:
        held = self._either()
        assert not self._words, self._words
        return held

    def _either(self) -> bool:
        held = self._both()
        while self._next_is("or"):
            held = self._both() or held
        return held

    def _both(self) -> bool:
        held = self._one()
        while self._next_is("and"):
            held = self._one() and held
        return held

    def _one(self) -> bool:
        word = self._words.pop(0)
        if word == "not":
            return not self._one()
        if word == "(":
            held = self._either()
            assert self._words.pop(0) == ")"
            return held
        if word in ("1", "any", "all") and self._next_is("of"):
            pattern = self._words.pop(0)
            wanted = re.compile(".*" if pattern == "them" else pattern.replace("*", ".*"))
            names = [name for name in self._names if wanted.fullmatch(name) and not name.startswith("_")]
            return (all if word == "all" else any)([self._selected(name) for name in names])
        return self._selected(word)

    def _next_is(self, word: str) -> bool:
        found = self._words[:1] == [word]
        if found:
            self._words.pop(0)
        return found


def _selected(definition: Any, fields: Fields) -> bool:
    if isinstance(definition, dict):
        return all(_item(key, value, fields) for key, value in definition.items())
    if isinstance(definition, list):
        return any(_selected(one, fields) for one in definition)
    return _item("|contains", definition, {"": "\n".join(fields.values())})


def _item(key: str, value: Any, fields: Fields) -> bool:
    name, *modifiers = key.split("|")
    if not name:
        fields = {"": "\n".join(fields.values())}
        modifiers.append("contains")
    values = value if isinstance(value, list) else [value]
    together = all if "all" in modifiers else any
    held = together([_value(fields.get(name), one, modifiers, fields) for one in values])
    return not held if "neq" in modifiers else held


def _value(held: str | None, value: Any, modifiers: list[str], fields: Fields) -> bool:
    if value is None:
        return held is None
    if held is None:
        return False
    if "re" in modifiers:
        flags = sum({"i": re.I, "m": re.M, "s": re.S}.get(one, 0) for one in modifiers)
        return re.search(value, held, flags) is not None
    if "cidr" in modifiers:
        try:
            return ipaddress.ip_address(held) in ipaddress.ip_network(value)
        except ValueError:
            return False
    if "fieldref" in modifiers:
        return held.lower() == fields.get(value, "\0").lower()
    if isinstance(value, bool):
        return held.lower() == str(value).lower()
    if isinstance(value, (int, float)) and not set(modifiers) & {"contains", "startswith", "endswith"}:
        return re.fullmatch(r"[+-]?\d+(\.\d+)?", held) is not None and float(held) == value
    return any(re.fullmatch(_expression(one, modifiers), held, re.I | re.S) for one in spellings(str(value), modifiers))


def _expression(text: str, modifiers: list[str]) -> str:
    """The regular expression of a text in which only wildcards are special."""
    inner = "".join({"*": ".*", "?": "."}.get(one, re.escape(one[-1])) for one in characters(text))
    before = ".*" if {"contains", "endswith"} & set(modifiers) else ""
    behind = ".*" if {"contains", "startswith"} & set(modifiers) else ""
    return before + inner + behind


def characters(text: str) -> list[str]:
    """The characters of a value: wildcards as they are, all others behind a backslash."""
    found, place = [], 0
    while place < len(text):
        if text[place] == "\\" and text[place + 1 : place + 2] in ("*", "?", "\\"):
            found.append("\\" + text[place + 1])
            place += 2
        else:
            found.append(text[place] if text[place] in "*?" else "\\" + text[place])
            place += 1
    return found


def spellings(text: str, modifiers: Iterable[str]) -> list[str]:
    """The texts that the modifiers which encode make of one."""
    texts = [text]
    for modifier in modifiers:
        if modifier == "windash":
            texts = [one for text in texts for one in _dashed(text)]
        elif modifier == "base64offset":
            texts = [one for text in texts for one in _shifted(text.encode())]
    return texts


def _dashed(text: str) -> list[str]:
    """The text with each dash of a flag in all its forms: one before a word that is not within a word."""
    parts = re.split(r"(\B[-/]\b)", text)
    return ["".join(made) for made in product(*((DASHES if place % 2 else [part]) for place, part in enumerate(parts)))]


def _shifted(content: bytes) -> list[str]:
    """What surely stands in base64 where the content begins at each of three places."""
    found = []
    for before in range(3):
        encoded = b64encode(bytes(before) + content).decode().rstrip("=")
        # Each character holds 6 bits; those of bytes before and behind are not known.
        first = -(-before * 8 // 6)
        found.append(encoded[first : (before + len(content)) * 8 // 6])
    return found


def made_up(detection: Mapping[str, Any], draw: Random) -> dict[str, str]:
    """Fields of an event that fits some of the detections, more or less."""
    pieces: dict[str, list[tuple[str, str]]] = {}
    for name, definition in detection.items():
        if name in ("condition", "timeframe") or (name.startswith("filter") and draw.random() < 0.7):
            continue
        chosen = definition
        while isinstance(chosen, list):
            chosen = draw.choice(chosen)
        for key, value in (chosen if isinstance(chosen, dict) else {"|contains": chosen}).items():
            _add(pieces, key, value, draw)
    fields = {name: _assembled(texts) for name, texts in pieces.items()}
    for name in list(fields):
        if draw.random() < 0.05:
            del fields[name]
    return fields


def _add(pieces: dict[str, list[tuple[str, str]]], key: str, value: Any, draw: Random) -> None:
    name, *modifiers = key.split("|")
    values = value if isinstance(value, list) else [value]
    place = next(
        (one for one in modifiers if one in ("contains", "startswith", "endswith")), "contains" if not name else ""
    )
    for one in values if "all" in modifiers else [draw.choice(values)]:
        if one is None or "re" in modifiers or "fieldref" in modifiers:
            continue
        text = str(one)
        if "cidr" in modifiers:
            text = str(ipaddress.ip_network(text)[0])
        elif "base64offset" in modifiers:
            text = b64encode(b"x" * draw.randrange(3) + text.encode() + b"y").decode()
        else:
            text = draw.choice(spellings(text, modifiers))
            text = "".join({"*": draw.choice(["", "mid"]), "?": "q"}.get(char, char[-1]) for char in characters(text))
        pieces.setdefault(name, []).append((place, draw.choice([text, text.upper(), text.lower()]) if place else text))


def _assembled(texts: list[tuple[str, str]]) -> str:
    exact = [text for place, text in texts if not place]
    if exact:
        return exact[0]
    by_place = {
        kind: [text for place, text in texts if place == kind] for kind in ("startswith", "contains", "endswith")
    }
    first, last = by_place["startswith"][:1], by_place["endswith"][:1]
    return "".join([*first, " ".join(["", *by_place["contains"], ""]), *last])
