"""`make freeze-check`: compares what the library does with what it did when it was recorded (`FREEZE=--write`).

For rearrangements that must change nothing. It records, in `tests/support/frozen.json`:

- every write and delete of every simulation, for some seeds, as one hash each: call by call and byte by byte
- the golden streams, as one hash each, and the keys of `strandline inspect --json` for each of them
- the public names of `strandline`, of its classes and of `strandline.testing`

A change that makes other storage calls changes the hashes of simulations although nothing is wrong: simulations inject
faults by the number of the call. Record them anew then, and say why in the commit.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import itertools
import json
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from typer.testing import CliRunner

import strandline as sl
from strandline.cli.app import app
from strandline.testing import MemoryStorage
from tests.simulation.catalogue import SIMULATIONS, Simulation
from tests.simulation.table_codec import Tables

FILE = Path(__file__).with_name("frozen.json")
GOLDEN = Path(__file__).parents[1] / "golden"
SEEDS = range(1, 7)
_COMPUTED = {"checksum", "seen_checksum", "before", "tip"}
"""Fields of files with checksums of others: seconds that were measured are in them."""


@contextmanager
def hashed() -> Iterator[Any]:
    """Yields a hash that takes in every write, every delete and every table of a block while the block runs."""
    found = hashlib.sha256()

    def note(*parts: bytes) -> None:
        for part in parts:
            found.update(len(part).to_bytes(8, "little") + part)

    def noting(name: str) -> Any:
        before = getattr(MemoryStorage, name)

        def call(self: MemoryStorage, key: str, *data: bytes) -> Any:
            note(name.encode(), key.encode(), *map(steady, data))
            return before(self, key, *data)

        return mock.patch.object(MemoryStorage, name, call)

    keep = Tables.keep

    def noting_keep(self: Tables, table: pa.Table) -> bytes:
        note(json.dumps(table.to_pylist(), default=str).encode())
        return keep(self, table)

    numbers = itertools.count()
    with (
        noting("create"),
        noting("put"),
        noting("delete"),
        mock.patch.object(Tables, "keep", noting_keep),
        mock.patch.object(uuid, "uuid4", side_effect=lambda: uuid.UUID(int=next(numbers))),
    ):
        yield found


def steady(data: bytes) -> bytes:
    """Returns the bytes of a file without the seconds that were measured on the way, and what is computed from them."""
    if data.startswith(b"PAR1"):
        return b""  # blocks are noted as tables; a leaf of the index has checksums of commits in it
    if not data.startswith(b"{"):
        return data
    try:
        body = json.loads(data)
    except ValueError:
        return data  # a file that the simulation has damaged
    return json.dumps(_without_measures(body), sort_keys=True).encode()


def _without_measures(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_measures(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {k: _without_measures(v) for k, v in value.items() if not k.endswith("_s") and k not in _COMPUTED}


def of_simulation(simulation: Simulation) -> dict[str, str]:
    """Returns a hash for each seed of a simulation."""
    hashes = {}
    for seed in SEEDS:
        with hashed() as found:
            simulation.run(seed)
        hashes[str(seed)] = found.hexdigest()[:16]
    return hashes


def of_golden(stream: Path) -> dict[str, Any]:
    """Returns a hash of the files of a golden stream, and the keys of what `inspect --json` prints of it."""
    files = hashlib.sha256()
    for file in sorted(path for path in stream.rglob("*") if path.is_file()):
        files.update(str(file.relative_to(stream)).encode() + file.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(stream, Path(folder) / "stream")
        printed = CliRunner().invoke(app, ["inspect", str(copy), "--json"])
    keys = sorted(keys_of(json.loads(printed.stdout))) if printed.exit_code == 0 else [f"exit {printed.exit_code}"]
    return {"files": files.hexdigest()[:16], "inspect": keys}


def keys_of(value: Any, prefix: str = "") -> set[str]:
    """Returns the paths of all keys in a JSON value; all elements of a list have the same path.

    >>> sorted(keys_of({"a": [{"b": 1}, {"c": 2}]}))
    ['a', 'a[].b', 'a[].c']
    """
    if isinstance(value, list):
        return set().union(*(keys_of(each, f"{prefix}[]") for each in value)) if value else set()
    if not isinstance(value, dict):
        return set()
    paths = {f"{prefix}.{key}" if prefix else key: inner for key, inner in value.items()}
    return set(paths).union(*(keys_of(inner, path) for path, inner in paths.items()))


def public_names() -> dict[str, list[str]]:
    """Returns the public names of the package and of each public class, with the parameters of what can be called."""
    found = {"strandline": sorted(sl.__all__), "strandline.testing": sorted(sl.testing.__all__)}
    for name in sl.__all__:
        value = getattr(sl, name)
        if inspect.isclass(value):
            members = ((m, inspect.getattr_static(value, m)) for m in dir(value) if not m.startswith("_"))
            found[name] = sorted(m + _parameters(member) for m, member in members)
        elif callable(value):
            found[name] = [_parameters(value)]
    return found


def _parameters(value: Any) -> str:
    value = getattr(value, "__func__", value)
    return f"({', '.join(inspect.signature(value).parameters)})" if inspect.isfunction(value) else ""


def record() -> dict[str, Any]:
    """Returns all that is compared."""
    found: dict[str, Any] = {"names": public_names()}
    streams = sorted(path.parent for path in GOLDEN.rglob("stream.json"))
    found["golden"] = {str(stream.relative_to(GOLDEN)): of_golden(stream) for stream in streams}
    for name, simulation in SIMULATIONS.items():
        print(f"{name}: {len(SEEDS)} seeds", file=sys.stderr, flush=True)
        found[f"simulation {name}"] = of_simulation(simulation)
    return found


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Returns a line for each place in which two records differ.

    >>> differences({"a": {"b": 1}, "c": [1]}, {"a": {"b": 2}, "c": [1]})
    ['a / b: 1 is now 2']
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [f"{path}: {before!r} is now {now!r}"]
    where = f"{path} / " if path else ""
    keys = sorted(before.keys() | now.keys())
    return [line for key in keys for line in differences(before.get(key), now.get(key), f"{where}{key}")]


def main() -> None:
    """Runs the command."""
    arguments = argparse.ArgumentParser(prog="make freeze-check", description=__doc__.split("\n")[0])
    arguments.add_argument("--write", action="store_true", help="record instead of comparing")
    found = json.loads(json.dumps(record()))
    if arguments.parse_args().write:
        FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return
    lines = differences(json.loads(FILE.read_text()), found)
    print("\n".join(lines) or "nothing has changed")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
