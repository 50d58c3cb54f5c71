"""What is asked of the Python that Spark's workers run, before anything is created. Without a JVM."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import strandline as sl
from strandline.errors import OptionError
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.spark.session import worker_python
from strandline.spark.session.preconditions import require_classic, require_ready, require_running
from tests.support.items import item_spec
from tests.support.plain_context import jvm_context


class Context:
    """A Spark, as far as its workers' Python is concerned."""

    master = "local[2]"

    def __init__(self, python, number=0):
        self.pythonExec = str(python)
        self.applicationId = f"{python}-{number}"
        self.archives = []

    def addArchive(self, path):  # Spark's name
        self.archives.append(path)


def require(context):
    worker_python.require_workers(type("Session", (), {"sparkContext": context})())


@pytest.fixture
def python(tmp_path):
    """Makes an interpreter that has these modules, as far as `find_spec` can tell, and not ours."""

    def make(*modules):
        libraries = tmp_path / "libraries"
        for module in modules:
            (libraries / module).mkdir(parents=True)
            (libraries / module / "__init__.py").touch()
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\nPYTHONPATH={libraries} exec {sys.executable} -S "$@"\n')
        script.chmod(0o755)
        return script

    return make


def test_the_drivers_own_python_is_not_asked():
    context = Context(sys.executable)
    require(context)
    assert context.archives == []


def test_a_python_without_our_libraries_is_refused_in_words(python):
    with pytest.raises(sl.OptionError, match="lacks pyarrow, numba, xxhash") as raised:
        require(Context(python("numpy")))
    assert "PYSPARK_PYTHON" in raised.value.todo
    assert sys.executable in raised.value.todo


def test_another_version_and_no_python_at_all_are_refused(tmp_path):
    older = tmp_path / "older"
    older.write_text('#!/bin/sh\necho \'{"python": [3, 9], "missing": [], "version": null}\'\n')
    older.chmod(0o755)
    with pytest.raises(sl.OptionError, match=f"is not Python 3.{sys.version_info[1]}"):
        require(Context(older))
    for nothing in (tmp_path / "none", "/bin/false"):
        with pytest.raises(sl.OptionError, match="does not start"):
            require(Context(nothing))


def test_a_python_without_us_gets_us_once_as_files_it_can_import(python, tmp_path):
    context = Context(python("numpy", "pyarrow", "numba", "xxhash"))
    require(context)
    require(context)
    (archive,) = context.archives
    path, _, name = archive.partition("#")
    zipfile.ZipFile(path).extractall(tmp_path / "root" / name)
    # As a worker does: the folder of Spark's files is where it looks for modules.
    program = "import strandline.version, strandline; print(strandline.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "root")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert Path(done.stdout.strip()) == tmp_path / "root" / "strandline" / "__init__.py"


def test_spark_connect_is_refused_before_anything_is_created(tmp_path):
    made = {"__module__": "pyspark.sql.connect.session"}
    session, frame = (type(name, (), dict(made))() for name in ("SparkSession", "DataFrame"))
    Log.create(open_storage(str(tmp_path / "there")), item_spec())
    stream = sl.stream(str(tmp_path / "there"))
    counted = stream.window(sl.count_window(2)).aggregate(n=sl.count_all())
    tries = [
        lambda: stream.read(session),
        lambda: stream.read_stream(session),
        lambda: counted.start(session, str(tmp_path / "s")),
        lambda: sl.register(session),
        lambda: sl.persist(frame, str(tmp_path / "s"), key="k", time="t"),
        lambda: sl.source(frame, str(tmp_path / "s"), key="k", time="t"),
        lambda: require_classic(session),
    ]
    for refused in tries:
        with pytest.raises(sl.OptionError, match="Spark Connect") as raised:
            refused()
        assert "classic" in raised.value.todo
    assert [p.name for p in tmp_path.iterdir()] == ["there"]


def test_a_session_that_was_stopped_is_refused_before_anything_is_created():
    for stopped in (None, jvm_context(lambda: True)):  # by this program, or by itself
        with pytest.raises(OptionError, match=r"(?s)was stopped.*streams/paid.*sl.session"):
            require_running(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=stopped)), "streams/paid")
    require_running(SimpleNamespace(sparkContext=SimpleNamespace(_jsc=jvm_context())), "streams/paid")


@pytest.mark.parametrize("wrong", [None, "local[2]"])
def test_what_is_no_session_is_refused_with_what_to_pass(tmp_path, wrong):
    Log.create(open_storage(str(tmp_path / "there")), item_spec())
    counted = sl.stream(str(tmp_path / "there")).window(sl.count_window(2)).aggregate(n=sl.count_all())
    stage = counted.into(str(tmp_path / "s"))
    for start in (lambda: counted.start(wrong, str(tmp_path / "s")), lambda: sl.pipeline(stage).start(wrong)):
        with pytest.raises(OptionError, match=r"(?s)needs a Spark session.*sl\.session\(\)"):
            start()
    assert not (tmp_path / "s").exists()


def test_a_pipeline_of_which_all_is_finished_may_start():
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=jvm_context()), streams=SimpleNamespace(active=[]))
    require_ready(spark, [], None)
