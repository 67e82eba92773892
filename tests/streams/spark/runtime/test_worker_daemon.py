import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from millstream.streams.spark.runtime.worker_daemon import POOL_VARIABLE
from millstream.streams.spark.runtime.worker_pools import RULES_WORKERS, workers_for

pytestmark = [pytest.mark.process, pytest.mark.spark]


_PRELOAD = """
import sys, threading
from millstream.streams.spark.runtime.worker_daemon import preload
preload("pyspark.worker")
print(threading.active_count(), *("pandas" in sys.modules, "millstream.streams.spark.translation.operator_host" in sys.modules))
"""


def test_what_workers_import_is_there_before_the_fork_and_no_thread_of_python_is() -> None:
    done = subprocess.run([sys.executable, "-c", _PRELOAD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True"]


_PRELOAD_AND_COLLECT = """
import gc
from millstream.streams.spark.runtime.worker_daemon import preload
preload("pyspark.worker")
print(gc.isenabled(), len(gc.get_objects()) < gc.get_freeze_count() / 100)
"""


def test_what_was_imported_is_not_looked_through_behind_each_task() -> None:
    done = subprocess.run([sys.executable, "-c", _PRELOAD_AND_COLLECT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


_PRELOAD_TO_JUDGE = """
import sys
from millstream.streams.spark.runtime.worker_daemon import preload
preload("pyspark.worker")
print(*("millstream.streams.rules.stage.stage" in sys.modules, "millstream.streams.spark.translation.operator_host" in sys.modules))
"""


def test_workers_that_judge_have_what_judges_and_not_what_others_need() -> None:
    environment = {**os.environ, POOL_VARIABLE: RULES_WORKERS}
    program = [sys.executable, "-c", _PRELOAD_TO_JUDGE]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True", "False"]


class _Context:
    def __init__(self) -> None:
        self.environment = {"KEPT": "1"}


class _Session:
    def __init__(self) -> None:
        self.sparkContext = _Context()


def test_a_pool_is_for_what_is_given_to_spark_meanwhile() -> None:
    session = _Session()
    spark: SparkSession = session  # type: ignore[assignment]
    with workers_for(spark, RULES_WORKERS):
        assert session.sparkContext.environment == {"KEPT": "1", POOL_VARIABLE: RULES_WORKERS}
    assert session.sparkContext.environment == {"KEPT": "1"}


_PRELOAD_AND_COUNT = """
import gc
from millstream.streams.spark.runtime.worker_daemon import preload
preload("pyspark.worker")
print(gc.get_freeze_count() > 50_000, len(gc.get_objects()) < 5_000)
"""


def test_workers_do_not_look_for_cycles_among_what_was_there_before_the_fork() -> None:
    done = subprocess.run([sys.executable, "-c", _PRELOAD_AND_COUNT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


_COLLECT_BEHIND_A_TASK = """
import gc
from pyspark import daemon
from millstream.streams.spark.runtime import worker_daemon
state = []

def manager():
    state.extend([number] for number in range(1000))
    daemon.gc.collect()
    print(any(one is state for one in gc.get_objects()))

daemon.manager = manager
worker_daemon._main([])
"""


def test_workers_do_not_look_for_cycles_among_what_an_earlier_task_has_kept() -> None:
    done = subprocess.run([sys.executable, "-c", _COLLECT_BEHIND_A_TASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


_UNHEARD = """
from pyspark import daemon
from millstream.streams.spark.runtime import worker_daemon

def worker(sock, authenticated):
    raise BrokenPipeError(32, "Broken pipe")

def manager():
    print("told", flush=True)
    daemon.worker(None, True)
    print("not reached")

daemon.worker, daemon.manager = worker, manager
worker_daemon._main([])
"""


def test_a_worker_whose_task_was_ended_ends_without_a_stack_trace() -> None:
    done = subprocess.run([sys.executable, "-c", _UNHEARD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "told\n", "")
