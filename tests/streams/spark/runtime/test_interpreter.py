import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.streams.spark.runtime.session import make_interpreter

_SHOW = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:], sep='|')"


def _run(python_path: str, *arguments: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": python_path}
    done = subprocess.run(
        [make_interpreter(), "-c", _SHOW, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split("|")


@pytest.mark.process
def test_spark_s_zips_and_jar_leave_the_path_and_what_is_the_user_s_stays_in_order(tmp_path: Path) -> None:
    mine = [str(tmp_path / "b with a space"), str(tmp_path / "a"), "/other/pyspark.zip"]
    spark = ["/x/python/lib/pyspark.zip", "/x/python/lib/py4j-0.10.9.9-src.zip", "/x/jars/spark-core_2.13-4.3.0.jar"]
    assert _run(":".join([spark[0], mine[0], *spark[1:], *mine[1:]]))[1] == ":".join(mine)


@pytest.mark.process
def test_it_is_this_interpreter_and_its_arguments_arrive_whole() -> None:
    assert _run("", "two words", "*", "$HOME") == [sys.executable, "", "two words", "*", "$HOME"]


@pytest.mark.process
def test_spark_s_daemons_are_ours_with_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; print(*sys.orig_argv[1:], sep='|', flush=True); sys.stdin.close()"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [make_interpreter(), "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()[0].split("|")
    assert said == ["-m", "millstream.streams.spark.runtime.worker_daemon", "pyspark.sql.worker.create_data_source"]
