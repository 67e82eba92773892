"""S22, kill -9 inside tiered storage: upload, commit, deletion and restore, over an object store that fails."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from crash.cold_judge import judge_cold_run
from crash.cold_points import COLD_POINTS, RESTORE_POINTS
from crash.programme import ProgrammeRun, scratch_directory

__all__ = ["kill_inside_tiered_storage"]

LIVES_OF_A_DISK: Final = 8
"""Lives after which the disk is lost and the broker is restored from the object store."""

_KILLED: Final = -9
_BEHIND_A_CRASH: Final = ("begun-deleting", "begun-deleted")
"""Points that a life comes to when the one before it has left an upload."""


def kill_inside_tiered_storage(run: ProgrammeRun) -> None:
    """S22. Each point once (CI), 20 times (full), 1,000 times (soak), all over one object store."""
    lives = [name for name in run.sample(list(COLD_POINTS)) for _ in range(run.by_size(1, 20, 1_000))]
    restores = [name for name in run.sample(list(RESTORE_POINTS)) for _ in range(run.by_size(1, 10, 500))]
    run.random.shuffle(lives)
    run.random.shuffle(restores)
    reached: Counter[str] = Counter()
    with scratch_directory() as root:
        (root / "histories").mkdir()
        for life, point in enumerate(lives):
            at_call = run.random.randint(1, COLD_POINTS[point].most_calls)
            if point in _BEHIND_A_CRASH:
                _one_life(run, root, "kill", f"{life}-before", "upload-begun", 1)
            is_killed = _one_life(run, root, "kill", f"{life}", point, at_call)
            # The point may be too rare for that; then the first call must do.
            reached[point] += is_killed or _one_life(run, root, "kill", f"{life}-again", point, 1)
            if life % LIVES_OF_A_DISK == LIVES_OF_A_DISK - 1 or life + 1 == len(lives):
                _lose_the_disk(run, root, f"{life}", restores, reached)
        while restores:
            _lose_the_disk(run, root, f"end-{len(restores)}", restores, reached)
        for point in {*lives}:
            if not reached[point]:
                run.fail(f"the point {point} was never reached")
        asyncio.run(judge_cold_run(run, root))
        if run.failures:
            run.fail("the data, the objects and the histories of this run", root)


def _one_life(run: ProgrammeRun, root: Path, what: str, life: str, point: str = "-", at_call: int = 0) -> bool:
    """Whether a life came to its point."""
    words = (what, root, life, point, at_call, run.random.randrange(1 << 30))
    code = subprocess.run([sys.executable, "-m", "crash.cold_load", *map(str, words)], check=False).returncode
    run.count("kills" if code == _KILLED else "lives_that_ended")
    if code not in (0, _KILLED):
        run.fail(f"life {life}, to {what} and to end at {point}, ended with {code}")
    return code == _KILLED


def _lose_the_disk(run: ProgrammeRun, root: Path, life: str, restores: list[str], reached: Counter[str]) -> None:
    """Bring all up, delete the broker's directory, and restore it, a few times in vain at first."""
    _one_life(run, root, "upload", f"{life}-upload")
    shutil.rmtree(root / "data")
    is_whole = False
    for point in [restores.pop() for _ in range(min(2, len(restores)))]:
        if is_whole:
            shutil.rmtree(root / "data")
        at_call = run.random.randint(1, RESTORE_POINTS[point].most_calls)
        is_whole = not _one_life(run, root, "restore", f"{life}-restore", point, at_call)
        reached[point] += not is_whole
    if not is_whole:
        _one_life(run, root, "restore", f"{life}-restore")
    run.count("restores")
