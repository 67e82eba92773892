"""User functions of rules that behave badly, and one that does not."""

from __future__ import annotations

import itertools
import os


def is_even(value: object) -> bool:
    return int(str(value)) % 2 == 0


def refuses(value: object) -> bool:
    raise ValueError(f"{value} is not for me")


def never_comes_back(value: object) -> bool:
    while value == "bad":
        pass
    return False


def blocks(value: object) -> bool:
    """Runs on in C, where no signal of Python's is heard."""
    return value == "bad" and any(itertools.repeat(False))


def crashes(value: object) -> bool:
    if value == "bad":
        os.abort()
    return False


def leaves(value: object) -> bool:
    if value == "bad":
        os._exit(3)
    return False
