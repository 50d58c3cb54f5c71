"""The servers that the storage tests talk to."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

# moto's own command serves several requests at once, but looks for the key and then writes it. One at a time makes
# its conditional put as exclusive as the one of S3.
_S3_SERVER = """
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

app = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, app, threaded=False, request_handler=MotoRequestHandler)
print(server.port, flush=True)
server.serve_forever()
"""


@contextmanager
def s3_server() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A real S3 server process with a bucket `tests`: its address, and the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        server = subprocess.Popen(
            [sys.executable, "-c", _S3_SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert server.stdout is not None
            # It listens before it prints, so the first request waits until it answers.
            endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
            import s3fs

            s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True).mkdir("tests")
            yield endpoint, server
        finally:
            server.kill()
            server.wait()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of such a server."""
    with s3_server() as (endpoint, _):
        yield endpoint


class _Hdfs(BaseHTTPRequestHandler):
    """WebHDFS as its documentation has it, over a dictionary: names are decided by one lock, as by the name node."""

    files: dict[str, bytes]
    lock: threading.Lock

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path).removeprefix("/webhdfs/v1")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.lock:
            self._answer(query["op"], path, query, data)

    do_GET = do_PUT = do_DELETE = _handle

    def _answer(self, op: str, path: str, query: dict[str, str], data: bytes) -> None:
        if op in ("CREATE", "OPEN") and "datanode" not in query:
            if op == "OPEN" and path not in self.files:
                return self._refuse("FileNotFoundException", 404)
            return self._reply(307, b"", {"Location": f"http://{self.headers['Host']}{self.path}&datanode=1"})
        if op == "CREATE":
            self.files[path] = data
            return self._reply(201, b"")
        if op == "OPEN":
            begin = int(query.get("offset", 0))
            return self._reply(200, self.files[path][begin : begin + int(query.get("length", 1 << 40))])
        if op == "RENAME":
            target = query["destination"]
            overwrite = query.get("renameoptions") == "OVERWRITE"
            allowed = path in self.files and (overwrite or target not in self.files)
            if allowed:
                self.files[target] = self.files.pop(path)
            return self._reply(200, b"" if overwrite else json.dumps({"boolean": allowed}).encode())
        if op == "DELETE":
            return self._reply(200, json.dumps({"boolean": self.files.pop(path, None) is not None}).encode())
        below = {name[len(path) + 1 :] for name in self.files if name.startswith(path + "/")}
        if op == "GETFILESTATUS" and path in self.files:
            return self._reply(200, json.dumps({"FileStatus": self._status(path, "")}).encode())
        if op == "GETFILESTATUS" and below:
            return self._reply(200, json.dumps({"FileStatus": {"type": "DIRECTORY", "length": 0}}).encode())
        if op == "LISTSTATUS" and below:
            names = sorted({name.split("/", 1)[0] for name in below})
            found = {"FileStatus": [self._status(path, name) for name in names]}
            return self._reply(200, json.dumps({"FileStatuses": found}).encode())
        return self._refuse("FileNotFoundException", 404)

    def _status(self, folder: str, name: str) -> dict[str, object]:
        data = self.files.get(f"{folder}/{name}" if name else folder)
        if data is None:
            return {"pathSuffix": name, "type": "DIRECTORY", "length": 0, "modificationTime": 0}
        return {"pathSuffix": name, "type": "FILE", "length": len(data), "modificationTime": 1_700_000_000_000}

    def _refuse(self, exception: str, status: int) -> None:
        self._reply(status, json.dumps({"RemoteException": {"exception": exception, "message": self.path}}).encode())

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="session")
def webhdfs_url() -> Iterator[str]:
    """The address of a stand-in for HDFS's gateway, as no HDFS can be started here."""
    handler = type("Handler", (_Hdfs,), {"files": {}, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "127.0.0.1")
        yield f"webhdfs://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
