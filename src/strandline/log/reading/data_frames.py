"""Arrow tables as data frames of packages that may not be installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import OptionError

if TYPE_CHECKING:
    import pandas


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Returns a pandas DataFrame: times stay microseconds, which hold all of the years 1 to 9999."""
    _package("pandas", "to_pandas()")
    return table.to_pandas(timestamp_as_object=False, coerce_temporal_nanoseconds=False)


def to_polars(table: pa.Table) -> Any:
    """Returns a polars DataFrame."""
    return _package("polars", "to_polars()").from_arrow(table)


def _package(name: str, method: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise OptionError(
            f"{method} needs the package {name}, which is not installed", todo=f"pip install {name}"
        ) from missing
