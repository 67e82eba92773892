"""Who asks a topic's cluster: keys and certificates among the options of its table."""

from __future__ import annotations

import pytest

from millstream.streams.connectors.options import OptionProblem
from millstream.streams.errors import JobError
from millstream.streams.spark.source.topic_log import Access
from millstream.streams.sql.options.option_checks import check_options

TOPIC = {"connector": "rocketmq", "topic": "t"}


def test_a_secret_comes_from_the_environment_when_a_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_SECRET", "s3")
    kept = check_options({**TOPIC, "accessKey": "ops", "secretKey": "${env:OPS_SECRET}", "tls": "system"}).options
    assert kept["secret-key"] == "${env:OPS_SECRET}"
    access = Access.of(kept)
    assert (access.access_key, access.secret_key, access.tls) == ("ops", "s3", "system")
    assert "s3" not in repr(access)


def test_a_secret_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPS_SECRET", raising=False)
    with pytest.raises(JobError, match="The environment has no OPS_SECRET"):
        Access.of({"access-key": "ops", "secret-key": "${env:OPS_SECRET}"})


@pytest.mark.parametrize("alone", ["access-key", "secret-key"])
def test_a_key_without_its_other_half_is_refused(alone: str) -> None:
    with pytest.raises(OptionProblem, match=f"'{alone}' needs"):
        check_options({**TOPIC, alone: "x"})
