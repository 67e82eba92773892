"""How often a command looks for cyclic garbage while it starts, and after that."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from millstream.cli import main
from millstream.cli.gc_tuning import SERVING_THRESHOLDS, STARTING_THRESHOLD, freeze_gc, relax_gc, restore_gc


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.unfreeze()
    gc.set_threshold(*before)


def test_a_server_that_is_ready_looks_seldom_and_never_at_what_its_start_made() -> None:
    relax_gc()
    assert gc.get_threshold()[0] == STARTING_THRESHOLD
    freeze_gc()
    assert gc.get_threshold() == SERVING_THRESHOLDS
    assert gc.get_freeze_count() > 0


def test_a_server_looks_once_at_what_stays() -> None:
    freeze_gc()
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(4 * SERVING_THRESHOLDS[0])]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 4 * SERVING_THRESHOLDS[0]
    # Those of the middle generation take in the young one, and what they leave is looked at when all is.
    assert len(generations) >= 3
    assert set(generations) == {1}


@pytest.mark.parametrize(("word", "seldom"), [("quickstart", True), ("start", True), ("error", False)])
def test_only_servers_look_seldom(
    word: str, seldom: bool, monkeypatch: pytest.MonkeyPatch, usual: tuple[int, int, int]
) -> None:
    monkeypatch.setattr("sys.argv", ["millstream", word])
    seen: list[int] = []
    monkeypatch.setattr(main, "main", lambda: seen.append(gc.get_threshold()[0]) or 0)
    restore_gc()
    with pytest.raises(SystemExit):
        main.run()
    assert seen == [STARTING_THRESHOLD if seldom else usual[0]]
