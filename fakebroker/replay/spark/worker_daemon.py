"""The process that forks Spark's Python workers, with the modules of the members already imported.

Spark runs it in local sessions instead of `pyspark.daemon`. Workers share the memory of these modules, and none of them
spends a second on importing them. The imports start no threads except jemalloc's thread, which allows forks.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_MODULES = ("pyspark.worker", "fakebroker.replay.spark.simulation_tasks", "fakebroker.replay.spark.tcp_tasks")


class _WithoutPandas(MetaPathFinder):
    """Makes `import pandas` fail."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ImportError(f"{fullname} is not needed")
        return None


def preload() -> None:
    """Import the modules that members and workers need.

    PyArrow imports pandas when it converts its first value, if pandas is installed. Members do not need it, and it
    takes half a second and 50 MiB in each worker.
    """
    import pyarrow as pa  # not at the top: NumPy must not start threads

    without_pandas = _WithoutPandas()
    sys.meta_path.insert(0, without_pandas)
    try:
        pa.array([""])
    finally:
        sys.meta_path.remove(without_pandas)
    for name in _MODULES:
        import_module(name)


if __name__ == "__main__":
    from pyspark.daemon import manager

    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy, which PyArrow imports, would start threads
    preload()
    manager()
