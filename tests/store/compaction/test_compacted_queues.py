"""The compacted queues of a store."""

from __future__ import annotations

from pathlib import Path

from compaction_samples import LogQueue, content
from crash.file_twins import HastyFiles

from millstream.store.compaction.compacted_queues import CompactedQueues


def test_queues_are_found_again_after_a_start(scratch: Path) -> None:
    source = LogQueue(("a", b"1"), ("a", b"2"))
    queues = CompactedQueues(scratch, HastyFiles())
    assert queues.on_disk() == []
    assert queues.find("prices", 0) is None
    queues.obtain("prices", 0, 0).compact(source, 2, 1)
    queues = CompactedQueues(scratch, HastyFiles())
    assert queues.on_disk() == [("prices", 0)]
    assert queues.find("prices", 0) is None
    assert content(queues.obtain("prices", 0, 0), source) == {1: ("a", b"2")}
    assert queues.find("prices", 0) is queues.obtain("prices", 0, 0)
    assert len([*queues]) == 1


def test_only_so_many_queues_keep_their_files_mapped_and_all_stay_readable(scratch: Path) -> None:
    source = LogQueue(("a", b"1"))
    queues = CompactedQueues(scratch, HastyFiles(), max_mapped=2)
    for number in range(5):
        queues.obtain(f"topic-{number}", 0, 0).compact(source, 1, 1)
    assert [queue._generation is not None for queue in queues] == [False, False, False, True, True]
    for number in range(5):
        queue = queues.find(f"topic-{number}", 0)
        assert queue is not None
        assert len(queue.entries(0, 10, source)) == 1
    assert sum(queue._generation is not None for queue in queues) == 2


def test_a_removed_topic_leaves_no_file_and_the_others_stay(scratch: Path) -> None:
    source = LogQueue(("a", b"1"))
    queues = CompactedQueues(scratch, HastyFiles())
    for topic, queue_id in [("prices", 0), ("prices", 1), ("orders", 0)]:
        queues.obtain(topic, queue_id, 0).compact(source, 1, 1)
    running = queues.obtain("prices", 0, 0).begin_compaction(source, 1, 1)
    running.step(1)
    queues.remove_topic("prices")
    assert running.is_over
    assert queues.on_disk() == [("orders", 0)]
    assert queues.find("prices", 0) is None
    assert queues.obtain("prices", 0, 0).end_offset == 0
