"""Rule collections of Sigma's first version: documents of a file that say what others share, by the key `action`.

`global` documents are merged into all that follow, until a `reset`; `repeat` is the document before it with changes.
What `global` says wins, as in pySigma.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from millstream.streams.rule_formats.sigma.documents import Document
from millstream.streams.rule_formats.sigma.fault import Fault

__all__ = ["collected"]

_ACTIONS: Final = ("global", "reset", "repeat")
_APART: Final = ("correlation", "filter")
"""What has such a key is no rule, and shares nothing."""


MAX_COLLECTED_CHARACTERS: Final = 16 * 2**20
"""Characters of all documents of a file with what they share, at most: a file could share much with many."""


def collected(documents: Iterable[Document | Fault]) -> Iterator[Document | Fault]:
    """The documents with what they share in each, without those that are only shared; faults stay in their places."""
    shared: Document | None = None
    before: Document | None = None
    ids: dict[str, int] = {}
    characters = 0
    for document in documents:
        if isinstance(document, Fault):
            yield document
            continue
        action = document.value.get("action")
        own = document.over({key: value for key, value in document.value.items() if key != "action"})
        if action == "global":
            shared = before = own if shared is None else own.over(_merged(shared.value, own.value), shared)
        elif action == "reset":
            shared = None
        elif action == "repeat" and before is not None:
            before = own.over(_merged(before.value, own.value), before)
            yield _named(before, own, ids)
        elif action is not None:
            yield Fault(_words(action), document.line("action"))
        elif any(key in document.value for key in _APART):
            yield document
        else:
            before = own if shared is None else own.over(_merged(own.value, shared.value), shared)
            yield _named(before, own, ids)
        characters += len(document.text if before is None else before.text)
        if characters > MAX_COLLECTED_CHARACTERS:
            yield Fault(f"the documents have more than {MAX_COLLECTED_CHARACTERS:,} characters together", own.line())
            return


def _words(action: Any) -> str:
    if action == "repeat":
        return "there is no rule before it to repeat"
    near = difflib.get_close_matches(str(action), _ACTIONS, n=1)
    return f"no action {action!r} is known{f'; {near[0]!r} is' if near else ''}"


def _merged(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, Any]:
    """Both in one; where both say something the second counts, but maps are merged."""
    merged = dict(first)
    for key, value in second.items():
        known = merged.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            value = _merged(known, value)
        merged[key] = value
    return merged


def _named(document: Document, own: Document, ids: dict[str, int]) -> Document:
    """With an id of its own: that of its document, else the shared one, which is numbered from its second use on."""
    name = own.value.get("id", document.value.get("id"))
    if name is None:
        return document
    used = ids[str(name)] = ids.get(str(name), 0) + 1
    if "id" not in own.value and used > 1:
        name = f"{name}-{used}"
    return document.over({**document.value, "id": name})
