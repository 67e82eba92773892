"""When the power fails, what was not synced is gone in part; what was acknowledged under sync flush is not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles, PowerLossFiles
from store_samples import SMALL, bodies, crashed_copy, pending

from millstream.store.message_store import MessageStore


@pytest.mark.parametrize("sync_flush", [True, False])
def test_what_was_flushed_survives_and_no_hole_is_left_in_the_middle(scratch: Path, sync_flush: bool) -> None:
    options = replace(SMALL, sync_flush=sync_flush)
    lost_records = 0
    for seed in range(60):
        choose, files = random.Random(seed), PowerLossFiles(seed)
        directory = scratch / str(seed)
        store = MessageStore.open(directory, options, files=files)
        sent: list[bytes] = []
        flushed = seen = 0
        for step in range(choose.randrange(1, 25)):
            sent.append(b"%d %d " % (seed, step) + b"x" * choose.randrange(600))
            store.put([pending(sent[-1])])
            if choose.random() < 0.3:
                store.flush()
                flushed = len(sent)
            if choose.random() < 0.1:
                store.write_checkpoint()
                flushed = len(sent)
            seen = len(bodies(store))
        files.cut_power()
        after = crashed_copy(directory, scratch / "after")
        store.close()
        survivor = MessageStore.open(after, options, files=HastyFiles())
        kept = bodies(survivor)
        assert kept == sent[: len(kept)], f"seed {seed}: a hole or an altered record"
        assert len(kept) >= flushed, f"seed {seed}: a flushed record is lost"
        if sync_flush:
            assert len(kept) >= seen, f"seed {seed}: a reader saw what the crash took back"
        lost_records += len(sent) - len(kept)
        assert survivor.put([pending()])[0].queue_offset == len(kept)
        survivor.close()
    assert lost_records, "the twin lost nothing, so nothing was tested"
