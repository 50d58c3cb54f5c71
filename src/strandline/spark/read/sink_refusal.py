"""Why `format("strandline")` does not write, and the line to write instead, made of the options that were given.

A sink of Spark's in Python gets rows as they lie, task by task. It can ask for no shuffle by key, no order and no
second look at a batch; all three are what makes a stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.errors import OptionError
from strandline.log.storage.redaction import redacted_url

_WHY = (
    'format("strandline") reads; a sink of Spark\'s cannot bring the tuples of a key together and into order, which is '
    "what a stream is"
)
_NUMBERS = ("partitions",)
_TEXTS = ("lateness", "retention", "max_ahead", "heartbeat", "durability", "compaction")


def refused_stream(options: Mapping[str, str]) -> OptionError:
    """Returns the error for `df.writeStream.format("strandline")…start(path)`."""
    return OptionError(_WHY, where=_path(options), todo=f"write {_line('df', options)}.start(spark) instead")


def refused_write(options: Mapping[str, str]) -> OptionError:
    """Returns the error for `df.write.format("strandline")…save(path)`, and for INSERT INTO a table."""
    source = "spark.readStream.schema(df.schema).parquet(folder)"
    line = f'{_line(source, options)}.start(spark, trigger="available-now")'
    return OptionError(
        f"{_WHY}, and a stream is fed by a stream",
        where=_path(options),
        todo=f"write the rows to a folder, df.write.parquet(folder), and {line}",
    )


def _path(options: Mapping[str, str]) -> str:
    return redacted_url(options.get("path", ""))


def _line(source: str, options: Mapping[str, str]) -> str:
    given = {name.replace("_", "").lower(): text for name, text in options.items()}
    arguments = [source, repr(redacted_url(given["path"])) if "path" in given else "path"]
    columns = [column.strip() for column in given.get("key", "").split(",") if column.strip()]
    arguments.append(f"key={columns[0]!r}" if len(columns) == 1 else f"key={columns!r}" if columns else "key=…")
    arguments.append(f"time={given['time']!r}" if "time" in given else "time=…")
    for name in (*_NUMBERS, *_TEXTS):
        if (text := given.get(name.replace("_", ""))) is not None:
            arguments.append(f"{name}={text if name in _NUMBERS else repr(text)}")
    if "storageoptions" in given or "storageoptionssecret" in given:
        arguments.append("storage_options=…")
    return f"sl.persist({', '.join(arguments)})"
