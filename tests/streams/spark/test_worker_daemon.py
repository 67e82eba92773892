import subprocess
import sys

_PRELOAD = """
import sys, threading
from millstream.streams.spark.worker_daemon import preload
preload("pyspark.worker")
print(threading.active_count(), *("pandas" in sys.modules, "millstream.streams.spark.operators.host" in sys.modules))
"""


def test_what_workers_import_is_there_before_the_fork_and_no_thread_of_python_is() -> None:
    done = subprocess.run([sys.executable, "-c", _PRELOAD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True"]
