"""Reading the server's pages as a scraper does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Scraped = dict[str, list[tuple[dict[str, str], float]]]
"""Samples by name: their labels and values."""


def get(address: str, path: str) -> tuple[int, str]:
    """The page's status and text."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def get_json(address: str, path: str) -> tuple[int, dict[str, Any]]:
    status, text = get(address, path)
    found: dict[str, Any] = json.loads(text)
    return status, found


def parse(text: str) -> Scraped:
    found: Scraped = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def value(scraped: Scraped, name: str, **labels: str) -> float | None:
    """The value of the one sample that has these labels, None if there is none."""
    found = [number for have, number in scraped.get(name, []) if labels.items() <= have.items()]
    assert len(found) <= 1, found
    return found[0] if found else None
