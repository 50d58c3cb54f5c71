"""A warning names the line of the user's program, or none: never a path inside of the library."""

import threading
import warnings
from pathlib import Path

import pytest

from strandline.errors import StrandlineError, StrandlineWarning
from strandline.spark.entry import heartbeat
from strandline.spark.session import session
from strandline.user_warning import warn

SOURCES = Path(session.__file__).parents[1]


def caught(work: object) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work()  # type: ignore[operator]
    return seen


def test_a_warning_points_at_the_line_that_called_the_library_however_deep_it_was_raised() -> None:
    beat = heartbeat.Heartbeat.__new__(heartbeat.Heartbeat)
    beat._has_warned = False
    (seen,) = caught(lambda: beat._warn(5_000_000))
    assert seen.filename == __file__
    assert seen.category is StrandlineWarning


def test_a_warning_of_a_thread_of_ours_shows_no_path_and_no_source_line() -> None:
    def work() -> None:
        thread = threading.Thread(target=warn, args=("the disk is full",))
        thread.start()
        thread.join()

    (seen,) = caught(work)
    shown = warnings.formatwarning(seen.message, seen.category, seen.filename, seen.lineno)
    assert shown == "strandline:0: StrandlineWarning: the disk is full\n"


def test_a_warning_made_an_error_is_raised() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StrandlineWarning, match="late"):
            warn("late")


def test_no_source_file_counts_stack_levels_by_hand() -> None:
    found = [
        p.name for p in SOURCES.rglob("*.py") if "warnings.warn(" in p.read_text() or "stacklevel" in p.read_text()
    ]
    assert found == []


@pytest.mark.parametrize("home", ["/nonsense", ""])
def test_a_missing_java_is_named_before_spark_is_started(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(StrandlineError, match="/nonsense" if home else "no Java was found"):
        session._require_java()


def test_an_interrupt_while_spark_starts_leaves_out_the_stack_of_py4j(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt from ConnectionError("py4j")

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr(session, "_require_java", lambda: None)
    monkeypatch.setattr(session, "_started", interrupted)
    with pytest.raises(KeyboardInterrupt, match="starting Spark") as raised:
        session.session("local[1]")
    assert raised.value.__suppress_context__
