"""Compiled kernels on their way to other processes, so that a new machine need not compile what another has compiled.

A process believes its bundle as it believes the task that comes with it: both travel the same way. A kernel is
found by its name, in which the processor has a part, so kernels of another kind of machine are simply never asked for.
"""

# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

import numba
from numba.core.registry import cpu_target

from strandline.errors import UnsafeFolderError
from strandline.operators.kernels.kernel_cache import (
    SHIPPED,
    TALLY,
    find_kernel,
    kernel_folder,
    kernel_stamp,
    put_kernel,
)


@dataclass(frozen=True)
class KernelBundle:
    """Files of kernels by their names, and what they were made from."""

    stamp: str
    files: dict[str, bytes] = field(repr=False)

    def unpack(self) -> int:
        """Puts kernels that are missing into this machine's folder, else into this process; returns how many."""
        if self.stamp != kernel_stamp():
            return 0
        folder = kernel_folder()
        new = {name: data for name, data in self.files.items() if not find_kernel(name)}
        for name, data in new.items():
            try:
                if folder is None:
                    raise OSError("no folder")
                put_kernel(folder, name, data)
            except (OSError, UnsafeFolderError):
                SHIPPED[name] = data
        return len(new)


def pack(names: Iterable[str]) -> KernelBundle:
    """Returns the kernels of these names, as far as this machine has them."""
    return KernelBundle(kernel_stamp(), {name: data for name in names if (data := find_kernel(name))})


# ---------------------------------------------------------------------- what belongs together


def kept_names(purpose: str) -> list[str] | None:
    """Returns the names that `keep_names` has noted for this purpose; None if one of these kernels is not there."""
    try:
        names: list[str] = json.loads(find_kernel(_note(purpose)))
    except ValueError:
        return None
    return names if all(map(find_kernel, names)) else None


def can_be_kept() -> bool:
    """Returns whether what is compiled now does any good to processes to come."""
    return not numba.config.DISABLE_JIT and kernel_folder() is not None


def keep_names(purpose: str) -> None:
    """Notes that the kernels which this process has by now are all that the purpose needs."""
    folder = kernel_folder()
    if folder is not None:
        with suppress(OSError, UnsafeFolderError):
            put_kernel(folder, _note(purpose), json.dumps(sorted(TALLY.names)).encode())


def _note(purpose: str) -> str:
    machine = cpu_target.target_context.codegen().magic_tuple()
    return sha256(repr((purpose, machine)).encode()).hexdigest()[:40] + ".json"
