"""Rules and nested events drawn at random, and a second, slow reading of such rules, without pySigma and formulas.

Events hold objects, lists of them and of values, numbers, truth values and nulls, as those of clouds do.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from random import Random
from typing import Any

import orjson

FIELDS = ("eventName", "userIdentity.type", "requestParameters.policy.name", "resources.ARN", "src_ip", "sc-status",
          "User Name", "@type", "args", "flag", "id.orig_h")  # fmt: skip
WORDS = ("ConsoleLogin", "consolelogin", "Delete*", "*Bucket*", "arn:aws:s3:::logs", "root", "200", "404", "", "true",
         "cat", "/etc/shadow", "10.1.2.3", "2001:db8::1", "IAMUser", "ab", "xaby", "50", "5", "No")  # fmt: skip
NUMBERS = (200, 404, 5, 50, 0, 1.5, 200.0, -1)
PATTERNS = ("^a", "o{1,2}t$", r"^\d+$", "(?i)CONSOLE")
NETWORKS = ("10.0.0.0/8", "2001:db8::/32")
CONDITIONS = ("s0 and s1", "s0 or s1", "s0 and not s1", "not s0", "1 of s*", "all of them")

Event = dict[str, Any]


def drawn_event(chance: Random) -> Event:
    event: Event = {}
    for field in chance.sample(FIELDS, chance.randint(1, len(FIELDS))):
        if "." not in field or chance.random() < 0.3:
            event[field] = _value(chance)
        else:
            _put(event, field.split("."), chance)
    return event


def _put(event: Event, keys: list[str], chance: Random) -> None:
    inner: Event = event
    for key in keys[:-1]:
        below: Event = {}
        beside: list[Any] = [{}, None, {keys[-1]: _value(chance, 1)}, "text"][: chance.randint(0, 4)]
        inner[key] = [below, *beside] if chance.random() < 0.4 else below
        inner = below
    inner[keys[-1]] = _value(chance)


def _value(chance: Random, depth: int = 0) -> Any:
    drawn = chance.random()
    if drawn < 0.2 and depth < 2:
        return [_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    single = (chance.choice(WORDS).replace("*", ""), chance.choice(NUMBERS), chance.random() < 0.5, None, {"k": "root"})
    return chance.choices(single, (6, 2, 1, 1, 0.5))[0]


def drawn_detection(chance: Random) -> dict[str, Any]:
    searches = {f"s{number}": dict(_item(chance) for _ in range(chance.randint(1, 2))) for number in range(2)}
    return {**searches, "condition": chance.choice(CONDITIONS)}


def _item(chance: Random) -> tuple[str, Any]:
    field, texts = chance.choice(FIELDS), chance.sample([word for word in WORDS if word], 2)
    plain = chance.choice((texts[0], texts, chance.choice(NUMBERS), True, "*", "?oot", ""))
    return chance.choice((
        (field, plain),
        (field, None),
        (f"{field}|{chance.choice(('contains', 'startswith', 'endswith'))}", chance.choice((texts[0], texts))),
        (f"{field}|{chance.choice(('all', 'contains|all'))}", texts),
        (f"{field}|re", chance.choice(PATTERNS)),
        (f"{field}|cidr", chance.choice(NETWORKS)),
        (f"{field}|{chance.choice(('gt', 'lte'))}", chance.choice(NUMBERS)),
        (f"{field}|exists", chance.random() < 0.5),
        (f"{field}|fieldref", chance.choice(FIELDS)),
        (f"{field}|neq", plain),
    ))  # fmt: skip


def fits(detection: Mapping[str, Any], event: Event) -> bool:
    """Whether the event fits; log sources are not looked at."""
    first, second = (all(_holds(key, value, event) for key, value in detection[name].items()) for name in ("s0", "s1"))
    answers = (first and second, first or second, first and not second, not first, first or second, first and second)
    return answers[CONDITIONS.index(detection["condition"])]


def _holds(key: str, asked: Any, event: Event) -> bool:
    field, *modifiers = key.split("|")
    is_there, values = _values(event, field)
    if "exists" in modifiers:
        return is_there is asked
    operands = asked if isinstance(asked, list) else [asked]
    joined = all if "all" in modifiers else any
    held = joined([any(_fits(value, one, modifiers, event) for value in values) for one in operands])
    return not held if "neq" in modifiers else held


def _values(event: Event, field: str) -> tuple[bool, list[Any]]:
    """Whether the event has the field, and its values: one, or all elements of lists. A null is passed over at first."""
    found = [(True, _flat(event[field]))] if field in event else []
    if "." in field:
        gathered = _gathered(event, field.split("."))
        found += [(True, [one for value in gathered for one in _flat(value)])] if gathered else []
    full = [one for one in found if one[1] != [None] * len(one[1]) or not one[1]]
    return full[0] if full else found[0] if found else (False, [None])


def _gathered(value: Any, keys: list[str]) -> list[Any]:
    if not keys:
        return [value]
    if isinstance(value, list):
        return [one for element in value for one in _gathered(element, keys)]
    return _gathered(value[keys[0]], keys[1:]) if isinstance(value, dict) and keys[0] in value else []


def _flat(value: Any) -> list[Any]:
    return [one for element in value for one in _flat(element)] if isinstance(value, list) else [value]


def _fits(value: Any, operand: Any, modifiers: list[str], event: Event) -> bool:
    if value is None or operand is None:
        return value is operand
    text = _text(value)
    if "re" in modifiers:
        return re.search(operand, text) is not None
    if "cidr" in modifiers:
        try:
            return ipaddress.ip_address(text) in ipaddress.ip_network(operand)
        except ValueError:
            return False
    if "fieldref" in modifiers:
        return any(one is not None and _text(one).lower() == text.lower() for one in _values(event, operand)[1])
    if isinstance(operand, bool):
        return text.lower() == str(operand).lower()
    if isinstance(operand, (int, float)):
        number = None if isinstance(value, bool) or not re.fullmatch(r"-?\d+(\.\d+)?", text) else float(text)
        if number is None or not {"gt", "lte"}.intersection(modifiers):
            return number == operand
        return number > operand if "gt" in modifiers else number <= operand
    before = ".*" if {"contains", "endswith"} & {*modifiers} else ""
    behind = ".*" if {"contains", "startswith"} & {*modifiers} else ""
    inner = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in operand)
    return re.fullmatch(before + inner + behind, text, re.I | re.S) is not None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
