"""Strandline: stateful streaming on PySpark with the same results whatever crashes, its state kept in its own output.

>>> import strandline as sl
>>> spark = sl.session()                                                                      # doctest: +SKIP
>>> items = sl.source(df, "streams/items", key="id", time="at", lateness="10 s")              # doctest: +SKIP
>>> average = items.window(sl.count_window(10)).aggregate(average=sl.avg("price"))            # doctest: +SKIP
>>> query = average.checkpoint(sl.cec(recover_within="2 s")).start(spark, "streams/average")  # doctest: +SKIP
>>> sl.stream("streams/average").read(spark, since="2026-01-01").show()                       # doctest: +SKIP
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from strandline.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from strandline import testing as testing
    from strandline.api import *  # noqa: F403
else:
    _PARTS = {part.name for part in pkgutil.iter_modules(__path__)} - {"__main__"}  # noqa: F405

    def __getattr__(name: str) -> Any:
        """Loads all names of `strandline.api`, or a part such as `sl.testing`, when the first of them is used.

        Python runs this file in every process that opens a stream, Spark starts many of those, and most need the log
        alone, which loads in a fourth of the time.
        """
        if name in _PARTS:
            return importlib.import_module(f"{__name__}.{name}")
        if name == "__all__" or not name.startswith("__"):
            try:
                globals().update(_names())
            except KeyboardInterrupt:
                # Where an import was interrupted tells a user nothing, as little as where Spark's start was.
                importlib.import_module("strandline.spark.query.last_words").install()
                raise KeyboardInterrupt(f"interrupted while sl.{name} was loaded") from None
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({name for name in globals() if name.startswith("__")} | {*_names(), "testing"})

    def _names() -> dict[str, Any]:
        api = importlib.import_module("strandline.api")
        if importlib.import_module("strandline.supervision").begin():
            last_words = importlib.import_module("strandline.spark.query.last_words")
            last_words.install()
            last_words.leave_word_at_exit()
        return {name: getattr(api, name) for name in ("__all__", *api.__all__)}
