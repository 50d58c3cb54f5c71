"""How each fsspec filesystem creates a key that does not exist yet: the one thing fsspec leaves open.

fsspec's own `pipe_file(mode="create")` looks whether the key exists and then writes, unless the filesystem
does better. A filesystem is listed here only if the store itself decides who is first, and if no reader can
see a value half written:

    s3, s3a      PUT with `If-None-Match: *`; asked of the server at the first create, as some S3 servers
                 ignore the header
    gs, gcs      upload with `ifGenerationMatch=0`, which is what gcsfs makes of `mode="create"`
    abfs, az     upload with `If-None-Match: *`, which is what adlfs makes of `overwrite=False`
    webhdfs      a file beside it, then HDFS's rename, which refuses a name that is taken
    memory       a lock, as the store is a dictionary of this process

Not listed: `hdfs` through pyarrow, whose `move` deletes the target and tries again when the rename is
refused; and fsspec's `file`, since `LocalStorage` does that better.

All of these repeat a request whose reply was lost. The second request then finds the key of the first one,
so that `FileExistsError` may mean the caller's own bytes; the caller has to look (`storage.create_once`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar
from uuid import uuid4

from strandline.clock import SYSTEM_CLOCK
from strandline.log.storage.storage import TEMPORARY_PREFIX

# Larger values would be sent in parts, and a crash would leave parts behind that no listing shows.
_ONE_PUT = {"chunksize": 5 * 2**30}

_CONFLICT_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class Backend(ABC):
    """The calls on one kind of filesystem; each raises what the filesystem raises."""

    package: str
    put_options: ClassVar[Mapping[str, int]] = {}
    read_options: ClassVar[Mapping[str, int]] = {}

    def server(self, filesystem: Any, path: str) -> str | None:
        """Returns the server whose exclusive create has to be tried out first; None where it is known to work."""
        return None

    @abstractmethod
    def create(self, filesystem: Any, path: str, data: bytes) -> None:
        """Writes a file that does not exist, atomically; `FileExistsError` if it does."""

    def put(self, filesystem: Any, path: str, data: bytes) -> None:
        """Writes a file, replacing what was there, atomically."""
        filesystem.pipe_file(path, data, **self.put_options)

    def read(self, filesystem: Any, path: str) -> bytes:
        """Returns the bytes of a file, all of one version."""
        return bytes(filesystem.cat_file(path, **self.read_options))

    def read_range(self, filesystem: Any, path: str, begin: int, end: int) -> bytes:
        """Returns the bytes [begin, end) of a file."""
        return bytes(filesystem.cat_file(path, start=begin, end=end))

    def exists(self, filesystem: Any, path: str) -> bool:
        """Returns whether there is a file; a folder is none."""
        try:
            return bool(filesystem.info(path)["type"] == "file")
        except FileNotFoundError:
            return False

    def delete(self, filesystem: Any, path: str) -> None:
        """Removes a file if it is there."""
        with suppress(FileNotFoundError):
            filesystem.rm_file(path)


class S3Backend(Backend):
    """Amazon S3 and the servers that speak its protocol."""

    package = "s3fs"
    put_options = _ONE_PUT
    # One GET: s3fs would ask for the size first and fetch large values in ranges, of several versions maybe.
    read_options: ClassVar = {"max_concurrency": 1}

    def server(self, filesystem: Any, path: str) -> str | None:
        return f"{filesystem.s3.meta.endpoint_url} {filesystem.split_path(path)[0]}"

    def create(self, filesystem: Any, path: str, data: bytes) -> None:
        for pause_s in (*_CONFLICT_PAUSES_S, None):
            try:
                filesystem.pipe_file(path, data, mode="create", **self.put_options)
                return
            except OSError as error:
                code, status = s3_error(error)
                if status == 412 or code == "PreconditionFailed":
                    raise FileExistsError(path) from error
                # 409: another request on the key was under way, and this one has done nothing.
                if status != 409 or pause_s is None:
                    raise
                SYSTEM_CLOCK.sleep(pause_s)

    def exists(self, filesystem: Any, path: str) -> bool:
        # One HEAD: for a missing key s3fs's own `exists` goes on to list it as a folder.
        bucket, key, _ = filesystem.split_path(path)
        try:
            filesystem.call_s3("head_object", Bucket=bucket, Key=key)
        except FileNotFoundError:
            return False
        return True


class GcsBackend(Backend):
    """Google Cloud Storage."""

    package = "gcsfs"
    put_options = _ONE_PUT
    read_options: ClassVar = {"concurrency": 1}

    def create(self, filesystem: Any, path: str, data: bytes) -> None:
        filesystem.pipe_file(path, data, mode="create", **self.put_options)


class AzureBackend(Backend):
    """Azure Blob Storage and Data Lake Gen2."""

    package = "adlfs"

    def create(self, filesystem: Any, path: str, data: bytes) -> None:
        filesystem.pipe_file(path, data, overwrite=False)


class WebHdfsBackend(Backend):
    """HDFS through its HTTP gateway; as durable as HDFS's replication makes a closed file.

    Written with the calls below fsspec's methods: its `mv` throws away whether the rename was refused, and its
    files are written and read in several requests.
    """

    package = "requests"

    def create(self, filesystem: Any, path: str, data: bytes) -> None:
        if not self._write_and_rename(filesystem, path, data):
            if self.exists(filesystem, path):
                raise FileExistsError(path)
            raise OSError(f"HDFS did not rename a file to {path}")

    def put(self, filesystem: Any, path: str, data: bytes) -> None:
        self._write_and_rename(filesystem, path, data, renameoptions="OVERWRITE")

    def read(self, filesystem: Any, path: str) -> bytes:
        return self._opened(filesystem, path)

    def read_range(self, filesystem: Any, path: str, begin: int, end: int) -> bytes:
        return self._opened(filesystem, path, offset=begin, length=end - begin)

    def _opened(self, filesystem: Any, path: str, **part: int) -> bytes:
        reply = filesystem._call("OPEN", path=path, redirect=False, **part)
        if "Location" in reply.headers:
            reply = filesystem.session.get(filesystem._apply_proxy(reply.headers["Location"]))
            reply.raise_for_status()
        return bytes(reply.content)

    def _write_and_rename(self, filesystem: Any, path: str, data: bytes, **options: str) -> bool:
        temporary = f"{path.rpartition('/')[0]}/{TEMPORARY_PREFIX}{uuid4().hex}"
        renamed = False
        try:
            reply = filesystem._call("CREATE", method="put", path=temporary, redirect=False, overwrite="false")
            location = filesystem._apply_proxy(reply.headers["Location"])
            octets = {"content-type": "application/octet-stream"}
            filesystem.session.put(location, data=data, headers=octets).raise_for_status()
            reply = filesystem._call("RENAME", method="put", path=temporary, destination=path, **options)
            # With options HDFS answers without a body, and what goes wrong is an exception.
            renamed = not reply.content or bool(reply.json()["boolean"])
        finally:
            if not renamed:
                with suppress(Exception):
                    filesystem.rm_file(temporary)
        return renamed


class MemoryBackend(Backend):
    """fsspec's dictionary of this process; for trying things out, as it dies with the process."""

    package = "fsspec"

    _lock = threading.Lock()

    def create(self, filesystem: Any, path: str, data: bytes) -> None:
        with self._lock:
            if path in filesystem.store:
                raise FileExistsError(path)
            filesystem.pipe_file(path, data)

    def put(self, filesystem: Any, path: str, data: bytes) -> None:
        with self._lock:
            filesystem.pipe_file(path, data)


_S3, _GCS, _AZURE = S3Backend(), GcsBackend(), AzureBackend()

BACKENDS: dict[str, Backend] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "az": _AZURE,
    "webhdfs": WebHdfsBackend(),
    "memory": MemoryBackend(),
}


def s3_error(error: BaseException | None) -> tuple[str, int]:
    """Returns the code and the HTTP status of S3's answer, of which s3fs keeps only the cause; empty without one."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return str(response.get("Error", {}).get("Code", "")), int(status)
        error = error.__cause__
    return "", 0
