"""A model whose versions are messages of a topic: which one counts, and what a job does without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from millstream.model import properties
from millstream.model.errors import Unreachable
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.streams.errors import ModelError
from millstream.streams.jobs.environment import ModelTopic
from millstream.streams.learning.artefacts import PATHS_VARIABLE
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.pinned_model import PinnedModel, artefact_of
from millstream.streams.plan.types import DOUBLE, Field
from millstream.streams.spark.source.position import QueueSpan, Slice
from millstream.streams.spark.source.topic_log import TopicLog

INPUTS, OUTPUTS = [Field("x", DOUBLE)], [Field("y", DOUBLE)]
HOST = Address("127.0.0.1", 10911)


class MadeTopic:
    """Queues of a broker, and what was read of them."""

    def __init__(self) -> None:
        self.queues: dict[str, list[bytes]] = {"broker-a/0": [], "broker-a/1": []}
        self.read_slices: list[Slice] = []
        self.away = False
        self.opened = self.closed = 0

    def put(self, key: str, body: bytes, *, queue: int = 0, stored_ms: int = 0) -> None:
        records = self.queues[f"broker-a/{queue}"]
        message = OutgoingMessage("models", body, {properties.KEYS: key})
        records.append(
            encode_record(
                message,
                queue_id=queue,
                queue_offset=len(records),
                log_offset=0,
                store_timestamp_ms=stored_ms,
                store_host=HOST,
            )
        )

    def open(self) -> TopicLog:
        if self.away:
            raise Unreachable("The broker is away.")
        self.opened += 1
        return cast("TopicLog", self)

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        return {queue: QueueSpan(0, len(records), 0) for queue, records in self.queues.items()}

    def read(self, topic: str, part: Slice, tag: str = "*") -> Iterator[Sequence[memoryview]]:
        self.read_slices.append(part)
        yield [memoryview(record) for record in self.queues[part.queue][part.start : part.end]]

    def close(self) -> None:
        self.closed += 1


def feed(topic: MadeTopic, key: str = "line") -> ModelTopic:
    return ModelTopic("models", key, topic.open)


def test_the_last_message_with_the_models_name_counts() -> None:
    topic = MadeTopic()
    topic.put("line", b"first", stored_ms=5)
    topic.put("other", b"not this one", stored_ms=6)
    topic.put("line", b"second", stored_ms=7)
    assert feed(topic).newest() == ("broker-a-0-2", b"second")


def test_of_several_queues_the_message_that_was_stored_last_counts() -> None:
    topic = MadeTopic()
    topic.put("line", b"newer", queue=0, stored_ms=9)
    topic.put("line", b"older", queue=1, stored_ms=8)
    assert feed(topic).newest() == ("broker-a-0-0", b"newer")


def test_a_second_look_reads_only_what_came_since_and_closes_its_connection() -> None:
    topic = MadeTopic()
    topic.put("line", b"first")
    looked = feed(topic)
    looked.newest()
    topic.put("line", b"second", stored_ms=1)
    assert looked.newest() == ("broker-a-0-1", b"second")
    assert topic.read_slices == [Slice("broker-a/0", 0, 1), Slice("broker-a/0", 1, 2)]
    assert topic.opened == topic.closed == 2


def test_a_topic_without_the_model_or_with_its_deletion_has_none() -> None:
    topic = MadeTopic()
    looked = feed(topic)
    with pytest.raises(ModelError, match="has no model line") as refused:
        looked.newest()
    assert "millstream model send line" in (refused.value.remedy or "")
    topic.put("line", b"first")
    topic.put("line", b"", stored_ms=1)
    with pytest.raises(ModelError, match="has no model line"):
        looked.newest()


def test_a_cluster_that_is_away_is_told_as_the_models_trouble() -> None:
    topic = MadeTopic()
    topic.away = True
    with pytest.raises(ModelError, match=r"topic models of the model line cannot be read: The broker is away\."):
        feed(topic).newest()


def line(slope: float) -> bytes:
    """A model of ONNX that multiplies by `slope`."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.linear_model import LinearRegression

    estimator = LinearRegression().fit([[0.0], [1.0]], [0.0, slope])
    content: bytes = skl2onnx.convert_sklearn(
        estimator, initial_types=[("x", FloatTensorType([None, 1]))]
    ).SerializeToString()
    return content


def kept(directory: Path, topic: MadeTopic) -> PinnedModel:
    reference = ModelReference("line", ("x",), topic="models", stored="line")
    return PinnedModel(directory, reference, INPUTS, OUTPUTS, feed(topic))


def scored(model: PinnedModel, batch_id: int) -> Any:
    artefact, _ = artefact_of(str(model.directory), batch_id)
    return round(artefact.score([[1.0]], INPUTS, OUTPUTS)[0][0], 5)


def test_a_new_message_scores_from_the_next_micro_batch_on_and_what_cannot_be_taken_changes_nothing(
    tmp_path: Path,
) -> None:
    topic = MadeTopic()
    topic.put("line", line(2.0))
    model = kept(tmp_path, topic)
    model.begin(0)
    topic.put("line", line(3.0), stored_ms=1)
    model.begin(1)
    topic.put("line", b"no model", stored_ms=2)
    model.begin(2)
    assert "goes on as it was before" in (model.problem() or "")
    topic.away = True
    again = kept(tmp_path, topic)
    again.begin(0)
    again.begin(3)
    assert "The broker is away" in (again.problem() or "")
    assert [scored(again, number) for number in range(4)] == [2.0, 3.0, 3.0, 3.0]


def test_where_models_are_taken_from_certain_directories_alone_no_topic_gives_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = MadeTopic()
    topic.put("line", b"model")
    monkeypatch.setenv(PATHS_VARIABLE, str(tmp_path))
    with pytest.raises(ModelError, match="is none of the directories") as refused:
        kept(tmp_path, topic).begin(0)
    assert refused.value.name == "MODEL_NOT_TRUSTED"
