"""Clients of AMQP 0-9-1 that others wrote, unmodified: pika, amqplib, and Celery's workers over kombu."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.driver import install, require
from millstream.server.child import ServerProcess

_PATIENCE_S = 60.0
_OPTIONS = ("--amqp-port", "0", "--mqtt-port", "off", "--http-port", "off")
_CELERY = "celery==5.6.*"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("amqp") / "data", options=_OPTIONS) as process:
        yield process.addresses.protocols["amqp"]


def test_amqplib_gets_what_it_publishes_and_what_it_rejects_is_a_dead_letter(address: str) -> None:
    require("node", "npm")
    folder = Path(__file__).parent / "amqplib"
    if not (folder / "node_modules" / "amqplib").exists():
        install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], folder)
    command = ["node", str(folder / "exchange.mjs"), f"amqp://guest:guest@{address}"]
    said = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=True, text=True).stdout
    assert json.loads(said) == [["a", "m0", "m0"], ["a.b", "m1", "m1"], ["a.b.c", "m2", "m2"], ["rejected", "m1", "m1"]]


def test_celery_runs_tasks_retries_them_and_answers(address: str, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    venv.create(tmp_path / "venv", with_pip=True)
    install([str(python), "-m", "pip", "install", "--quiet", _CELERY], tmp_path)
    (tmp_path / "tasks.py").write_text(
        textwrap.dedent(
            """
            import os, sys
            from celery import Celery

            app = Celery("tasks", broker=os.environ["AMQP_URL"], backend="rpc://")

            @app.task
            def add(one, two):
                return one + two

            @app.task(bind=True, max_retries=2)
            def retry_once(self, value):
                if not self.request.retries:
                    raise self.retry(countdown=1)
                return value

            if __name__ == "__main__":
                results = [add.delay(number, 1) for number in range(50)]
                total = sum(result.get(timeout=50) for result in results)
                print(total, retry_once.delay("again").get(timeout=50))
            """
        )
    )
    environment = {**os.environ, "AMQP_URL": f"amqp://guest:guest@{address}//"}
    command = [str(python), "-m", "celery", "-A", "tasks", "worker", "-P", "solo"]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            asked = [str(python), "tasks.py"]
            said = subprocess.run(
                asked, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=True, text=True
            )
        finally:
            worker.terminate()
            worker.wait(_PATIENCE_S)
    assert said.stdout.split() == ["1275", "again"]


def test_rabbitmqs_java_client_loses_nothing_of_a_load(address: str) -> None:
    require("mvn", "java")
    folder = Path(__file__).parent / "perf-test"
    jars = folder / "target" / "jars"
    if not jars.exists():
        install(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], folder)
    tool = ["java", "-cp", f"{jars}/*", "com.rabbitmq.perf.PerfTest", "--uri", f"amqp://guest:guest@{address}"]
    # One consumer: of two, each waits for half of the messages, and never ends where the other was given one more.
    load = "-x 2 -y 1 -s 100 -c 100 -q 200 -f persistent -u perf -ad false -C 1500 -D 3000".split()
    done = subprocess.run([*tool, *load], stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=True, text=True)
    assert "sending rate avg" in done.stdout
    assert "nacked: 0 msg/s" in done.stdout or "nacked" not in done.stdout


def test_confirmed_messages_and_declarations_outlive_kill_9(tmp_path: Path) -> None:
    pika = pytest.importorskip("pika", reason="pika is not installed")
    for number in range(2):
        with ServerProcess(tmp_path / "data", options=_OPTIONS) as process:
            host, _, port = process.addresses.protocols["amqp"].rpartition(":")
            connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
            channel = connection.channel()
            channel.confirm_delivery()
            if not number:
                channel.queue_declare("killed", durable=True)
                channel.queue_bind("killed", "amq.topic", "k.#")
                for each in range(20):
                    channel.basic_publish("amq.topic", f"k.{each}", str(each), mandatory=True)
                method, _, _ = channel.basic_get("killed")
                channel.basic_ack(method.delivery_tag)
                # Answered once the acknowledgement before it is in the ledger.
                assert channel.queue_declare("killed", passive=True).method.message_count == 19
                process.kill()
                continue
            found = [channel.basic_get("killed", auto_ack=True)[2] for _ in range(20)]
            bodies = [body.decode() for body in found if body is not None]
            # What a crash takes of acknowledgements is delivered again; nothing is lost.
            assert bodies[-19:] == [str(each) for each in range(1, 20)]
            connection.close()
