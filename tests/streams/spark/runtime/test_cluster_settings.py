"""What `job run --master` passes to Spark for clusters of others, as far as that can be seen without one."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.cli.main import main
from millstream.cli.streams import job
from millstream.streams.spark.runtime import session, shipping
from millstream.streams.spark.runtime.java import JavaHome
from millstream.streams.spark.runtime.session import SessionOptions, spark_settings
from millstream.streams.spark.runtime.standalone import SECRET_VARIABLE

KUBERNETES = "k8s://https://10.0.0.1:6443"
SCRIPT = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print');
INSERT INTO shown SELECT n FROM numbers;
"""
PAGE = Path(__file__).parents[4] / "docs" / "spark-clusters.md"


class PlayedSpark:
    """A session that runs nothing: what it was started with, and what it was to give to its workers."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.python = ""
        self.archives: list[list[str]] = []
        self.sparkContext = self

    def start(self, _builder: object, options: SessionOptions, sockets: dict[str, str]) -> PlayedSpark:
        self.settings = spark_settings(options, sockets)
        self.python = os.environ["PYSPARK_PYTHON"]
        return self

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return self.settings

    def addPyFile(self, archive: str) -> None:  # noqa: N802 - Spark's name
        with zipfile.ZipFile(archive) as packed:
            self.archives.append(packed.namelist())


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., PlayedSpark]:
    """Runs a script or program with options, up to where Spark would start."""
    spark = PlayedSpark()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    monkeypatch.setattr(session, "find_java", lambda: JavaHome(tmp_path, 17, "PATH"))
    monkeypatch.setattr(session, "make_launcher", lambda *_: tmp_path / "java")
    monkeypatch.setattr(session, "_start", spark.start)

    def run_plans(_plans: Any, _common: Any, *, engine: Any, **_named: Any) -> int:
        engine._start(lambda _step: None)
        return 0

    monkeypatch.setattr(job, "run_plans", run_plans)

    def ask(file: str, *words: str, ships: bool = False) -> PlayedSpark:
        if not ships:
            # It packs the whole package.
            monkeypatch.setattr(shipping, "ship", lambda *_: None)
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "words.sql").write_text(SCRIPT)
        (tmp_path / "code" / "words.py").write_text(
            "from millstream.streams.sdk import StreamBuilder\n"
            "builder = StreamBuilder('made')\n"
            "builder.source('events', schema={'host': str}).print('shown')\n"
        )
        (tmp_path / "code" / "beside.py").write_text("")
        assert main(["job", "run", str(tmp_path / "code" / file), *words]) == 0
        return spark

    return ask


def test_kubernetes_gets_its_image_its_service_account_and_the_address_of_the_driver(
    run: Callable[..., PlayedSpark],
) -> None:
    given = {
        "spark.kubernetes.container.image": "registry/millstream:1",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "millstream",
        "spark.kubernetes.namespace": "jobs",
        "spark.driver.host": "millstream-driver.jobs.svc",
        "spark.executor.instances": "3",
    }
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    spark = run("words.sql", "--master", KUBERNETES, "--python", "/opt/millstream/bin/python", *words)
    assert spark.settings["spark.master"] == KUBERNETES
    assert {name: spark.settings[name] for name in given} == given
    assert spark.python == "/opt/millstream/bin/python"
    assert all(f"--set {name}" in PAGE.read_text() for name in list(given)[:2])


def test_yarn_gets_the_environment_as_an_archive_and_its_interpreter(run: Callable[..., PlayedSpark]) -> None:
    words = ("--archive", "env.tar.gz#env", "--archive", "more.zip", "--python", "./env/bin/python")
    spark = run("words.sql", "--master", "yarn", *words)
    assert spark.settings["spark.master"] == "yarn"
    assert spark.settings["spark.archives"] == "env.tar.gz#env,more.zip"
    assert spark.python == "./env/bin/python"
    assert "--archive env.tar.gz#env --python ./env/bin/python" in PAGE.read_text()


@pytest.mark.parametrize("master", [KUBERNETES, "yarn", "spark://10.0.0.1:7077"])
def test_a_cluster_gets_nothing_that_holds_on_this_machine_alone(run: Callable[..., PlayedSpark], master: str) -> None:
    settings = run("words.sql", "--master", master).settings
    here = spark_settings(SessionOptions(), {})
    alone = here.keys() - settings.keys()
    assert alone == {
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.python.daemon.module",
        "spark.sql.streaming.checkpointFileManagerClass",
        "spark.hadoop.fs.file.impl",
    }
    assert not any("unix.domain.socket" in name for name in settings)
    assert session.SQL_SETTINGS.items() <= settings.items()


def test_workers_of_a_cluster_get_this_package_and_the_modules_beside_the_program(
    run: Callable[..., PlayedSpark], tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "third.py").write_text("")
    spark = run("words.py", "--master", KUBERNETES, "--code", str(tmp_path / "more"), ships=True)
    package, beside, more = spark.archives
    assert "millstream/streams/spark/source/data_source.py" in package
    assert {"words.py", "beside.py"} <= set(beside)
    assert more == ["third.py"]


def test_a_secret_signs_connections_and_stands_in_no_setting(
    run: Callable[..., PlayedSpark], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "0123456789abcdef0123"
    monkeypatch.setenv(SECRET_VARIABLE, secret)
    settings = run("words.sql", "--master", "spark://10.0.0.1:7077").settings
    assert settings["spark.authenticate"] == "true"
    assert not any(secret in value for value in settings.values())


def test_the_recipe_of_the_image_has_what_a_pod_of_an_executor_needs() -> None:
    (recipe,) = re.findall(r"```dockerfile\n(.*?)```", PAGE.read_text(), re.DOTALL)
    from pyspark import __version__

    assert f"apache/spark:{__version__}" in recipe
    assert "/opt/entrypoint.sh" in recipe
    assert 'pip install "millstream[streams]"' in recipe
