"""Kernels are compiled before they are needed: all that an operator will run, and by whoever was told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.arrow_types import SIMPLE
from strandline.cli.app import app
from strandline.log.storage.local_storage import LocalStorage
from strandline.operators.kernels.kernel_bundle import KernelBundle, pack
from strandline.running.kernel_warm_up import COMMON, Kernels, _values, live_in_small
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import PLANS, Streams, input_spec

ROOT = Path(__file__).parents[2]

A_LIFE = """
import json, sys
from pathlib import Path
from random import Random
from strandline.checkpoint.policy import cec, instant
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import PLANS, Streams, Tuples

recovered = 0
for policy in (cec(extent="2x", replay=500), instant("1 s")):
    homes = [Path(sys.argv[2], policy.kind, str(i)) for i in range(4)]
    streams = Streams(PLANS[sys.argv[1]], lambda partition: StateCache(homes[0]))
    tuples = Tuples(Random(1), keys=400)
    for batch in range(8):
        streams.append(tuples.rows(200 if batch % 2 else 10))
        streams.clock.advance(0.4)
        if batch % 3 == 2:
            homes.pop(0)  # the state is gone
        recovered += sum(done.recovery is not None for done in streams.batch(policy))
print(json.dumps({"recovered": recovered, "compiled": TALLY.compiled, "names": list(TALLY.names)}))
"""
EVERY = [pytest.param(name, marks=() if name == "sliding time" else pytest.mark.long) for name in PLANS]


def kernels(name: str) -> Kernels:
    return Kernels(PLANS[name], (input_spec([column for column, _ in PLANS[name].key]),))


@pytest.mark.parametrize("name", EVERY)
def test_an_operator_whose_kernels_were_compiled_beforehand_compiles_nothing(name: str, tmp_path: Path) -> None:
    started = kernels(name).compiling()
    assert (started.communicate()[1], started.returncode) == (b"", 0)
    kept = kernels(name).names
    assert kept
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", A_LIFE, name, str(tmp_path)]
    lived = json.loads(subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True).stdout)
    assert lived["recovered"] >= 2
    assert lived["compiled"] == 0
    # Others may have compiled for the same folder, so that alone says little.
    assert set(lived["names"]) <= set(kept)


def test_kernels_that_are_kept_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.running.kernel_warm_up.live_in_small", lambda *_: pytest.fail("they are there"))
    monkeypatch.setattr("strandline.running.kernel_warm_up.kept_names", lambda _: ["some.kernel"])
    kernels("sliding time").compile()


def test_kernels_do_not_depend_on_how_large_windows_are_but_on_what_is_computed() -> None:
    plan = PLANS["sliding time"]
    spec = input_spec(["k"])
    purpose = Kernels(plan, (spec,))._purpose
    longer = replace(plan, window=replace(plan.window, size=3_600_000_000, advance=1_000_000))
    assert Kernels(longer, (spec,))._purpose == purpose
    tumbling = replace(plan, window=replace(plan.window, advance=plan.window.size))
    assert Kernels(tumbling, (spec,))._purpose != purpose
    assert Kernels(replace(plan, accumulators=plan.accumulators[:1]), (spec,))._purpose != purpose


@pytest.mark.parametrize("name", ["tumbling count", "session"])
def test_a_life_in_small_leaves_nothing_behind(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    live_in_small(PLANS[name], (input_spec([column for column, _ in PLANS[name].key]),))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "kind",
    [*SIMPLE, "decimal(2,2)", "decimal(10,2)", "decimal(38,0)", {"type": "array", "elementType": "long"}],
)
def test_a_life_in_small_has_values_of_every_type(kind: object) -> None:
    assert len(_values(kind, range(300), 0)) == 300


# ---------------------------------------------------------------------- by hand


def test_the_command_compiles_what_is_common_or_what_an_operator_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Kernels] = []
    monkeypatch.setattr(Kernels, "compile", lambda kernels: compiled.extend([kernels]))
    said = CliRunner().invoke(app, ["warm-up", "--json"])
    assert (said.exit_code, json.loads(said.stdout).keys()) == (0, {"compiled", "seconds", "folder"})
    assert compiled == COMMON
    storages = (LocalStorage(tmp_path / "input", durability="os"), LocalStorage(tmp_path / "output", durability="os"))
    streams = Streams(PLANS["session"], lambda partition: StateCache(tmp_path / "state"), storages=storages)
    assert CliRunner().invoke(app, ["warm-up", str(tmp_path / "output")]).exit_code == 0
    assert compiled[-1] == Kernels(PLANS["session"], (streams.input.spec,))
    refused = CliRunner().invoke(app, ["warm-up", str(tmp_path / "input")])
    assert refused.exit_code == 1
    assert "no operator writes this stream" in refused.output


# ---------------------------------------------------------------------- on their way to other machines

ONE_KERNEL = """
import json, sys
from pathlib import Path
import numpy as np
from strandline.operators.kernels import key_codec
from strandline.operators.kernels.kernel_bundle import KernelBundle, pack
from strandline.operators.kernels.kernel_cache import SHIPPED, TALLY, kernel_folder
import pickle

given, made = map(Path, sys.argv[1:])
if given.is_file():
    pickle.loads(given.read_bytes()).unpack()
words = np.empty(1, np.int64)
key_codec._hash(np.frombuffer(b"strandline", np.uint8), np.array([0, 10]), words)
made.write_bytes(pickle.dumps(pack(TALLY.names)))
print(json.dumps({"compiled": TALLY.compiled, "loaded": TALLY.loaded, "in_memory": len(SHIPPED),
                  "word": int(words[0]), "seconds": TALLY.seconds, "kept": len(list(kernel_folder().iterdir()))}))
"""


def one_kernel(folder: Path, given: Path = Path("nothing"), **settings: str) -> dict[str, object]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "NUMBA_CACHE_DIR": str(folder),
        **settings,
    }
    command = [sys.executable, "-c", ONE_KERNEL, str(given), f"{folder}.bundle"]
    found: dict[str, object] = json.loads(
        subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True).stdout
    )
    return found


def test_a_machine_that_is_given_kernels_loads_them_and_keeps_them(tmp_path: Path) -> None:
    made = one_kernel(tmp_path / "driver")
    assert (made["compiled"], made["loaded"]) == (1, 0)
    bundle = tmp_path / "driver.bundle"
    given = one_kernel(tmp_path / "executor", bundle)
    assert (given["compiled"], given["loaded"], given["in_memory"]) == (0, 1, 0)
    assert given["word"] == made["word"]
    other = one_kernel(tmp_path / "another processor", bundle, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert (other["compiled"], other["loaded"], other["word"]) == (1, 0, made["word"])
    later = one_kernel(tmp_path / "executor")
    assert (later["compiled"], later["loaded"], later["kept"]) == (0, 1, 1)


def test_kernels_of_other_sources_or_with_a_flipped_bit_are_not_used() -> None:
    damaged = KernelBundle("of other sources", {"x.kernel": b"whatever"})
    assert damaged.unpack() == 0
    assert pack(["no such.kernel"]).files == {}
