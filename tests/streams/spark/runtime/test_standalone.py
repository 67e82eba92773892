"""Spark's own cluster: what is refused before a process starts, and a process that ends at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.streams.errors import JobError
from millstream.streams.spark.runtime.standalone import (
    SECRET_VARIABLE,
    SparkDaemon,
    SparkMaster,
    SparkWorker,
    authentication,
    secret_settings,
)

SECRET = "0123456789abcdef"


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "::", "some-host"])
async def test_nobody_else_reaches_a_cluster_without_a_secret(host: str, tmp_path: Path) -> None:
    for role in (SparkMaster(host, 0), SparkWorker("spark://127.0.0.1:1", host, 1, 512, tmp_path / "work")):
        with pytest.raises(JobError, match="may run programs there") as refusal:
            await SparkDaemon(role, tmp_path / "log", {}).start()
        assert SECRET_VARIABLE in refusal.value.remedy
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("secret", ["short", "with a space in it, and long", "quote'" + SECRET])
def test_a_secret_that_cannot_be_one_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(JobError, match="is not one of 16 to 200 letters") as refusal:
        authentication({SECRET_VARIABLE: secret})
    assert secret not in str(refusal.value)


def test_the_secret_is_in_no_setting_and_in_a_file_of_its_own_while_a_driver_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.port 1")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    assert SECRET not in str(authentication())
    with secret_settings():
        directory = Path(os.environ["SPARK_CONF_DIR"])
        written = directory / "spark-defaults.conf"
        assert written.read_text().split("\n")[:2] == ["spark.ui.port 1", f"spark.authenticate.secret {SECRET}"]
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()
    assert os.environ["SPARK_CONF_DIR"] == str(tmp_path)


async def test_a_process_that_ends_at_once_is_an_error_that_names_its_log(tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'ERROR no memory'; exit 3\n")
    (home / "bin" / "java").chmod(0o755)
    daemon = SparkDaemon(
        SparkMaster("127.0.0.1", 0), tmp_path / "log", {"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"}
    )
    with pytest.raises(JobError, match="ended before it was ready") as refusal:
        await daemon.start()
    assert str(tmp_path / "log") in (refusal.value.remedy or "")
    assert (tmp_path / "log").exists()


@pytest.mark.parametrize("master", ["", "nonsense", "127.0.0.1:7077", "spark://host", "http://host:7077"])
async def test_an_address_that_is_no_masters_is_refused_at_once(master: str, tmp_path: Path) -> None:
    worker = SparkWorker(master, "127.0.0.1", 1, 512, tmp_path / "work")
    with pytest.raises(JobError, match="is no address of a Spark master"):
        await SparkDaemon(worker, tmp_path / "log", {}).start()
    assert os.listdir(tmp_path) == []
