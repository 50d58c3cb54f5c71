"""No text that Strandline makes holds a secret: not its errors, not what it prints, not what it writes."""

import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

import strandline as sl
from strandline.cli.app import app
from strandline.errors import OptionError, StorageError
from strandline.log.storage.fsspec_storage import FsspecStorage
from strandline.log.storage.redaction import redacted_url
from strandline.log.storage.storage_url import open_storage
from strandline.spark.read.read_options import ReadOptions
from strandline.spark.session.place import Place

SECRET = "sesame/7+Zz"
URLS = [
    f"s3://AKIA:{SECRET}@bucket/items",
    f"s3://AKIA:{SECRET}@bucket/a@b/items",
    f"s3a://:{SECRET}@bucket",
    f"S3://AKIA:{SECRET}@bucket/../items",
    f"s3://AKIA:{SECRET}@",
    f"s3:/AKIA:{SECRET}@bucket/items",
    f"ftp://me:{SECRET}@host/items",
    f"hdfs://me:{SECRET}@host:8020/items",
    f"webhdfs://me:{SECRET}@host:9870/items",
    f"file://me:{SECRET}@host/items",
    f"simplecache::s3://AKIA:{SECRET}@bucket/items",
    f"s3://AKIA:{SECRET}@bucket/it\0ms",
    f"s3://[AKIA:{SECRET}@bucket/items",
    f"abfs://box@account.dfs.core.windows.net/items?sv=2&sig={SECRET}&x=1",
    f"s3://bucket/items?X-Amz-Security-Token={SECRET}",
]


def told(problem: BaseException) -> str:
    """All that a program, a log or Spark may show of an error."""
    return "".join(traceback.format_exception(problem)) + repr(problem) + repr(problem.args)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "opened",
    [
        open_storage,
        FsspecStorage,
        Place,
        sl.stream,
        lambda url: Place("/tmp").below("x") and Place(url).open(),
        lambda url: ReadOptions.of({"path": url}),
        lambda url: ReadOptions.of({"path": url, "storage_options": json.dumps({"secret": SECRET})}),
    ],
)
def test_a_url_with_a_secret_is_refused_in_words_without_it(opened: Callable[[str], object], url: str) -> None:
    with pytest.raises(OptionError) as refused:
        opened(url)
    assert SECRET not in told(refused.value)


@pytest.mark.parametrize("command", ["inspect", "graph", "verify", "tail", "replay", "compact", "collect"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_program_does_not_print_it(command: str, options: list[str]) -> None:
    for url in (u for u in URLS if "\0" not in u):
        result = CliRunner().invoke(app, [command, url, *(options if command in ("inspect", "verify") else [])])
        assert result.exit_code != 0
        assert SECRET not in result.output + told(result.exception or Exception())
        assert "".join(SECRET.split()) not in "".join(result.output.split()).replace("│", "")


@pytest.mark.parametrize(
    "url",
    [
        "/data/a:b@c",
        "items",
        "s3://bucket/items",
        "s3://bucket/a:b@c/items",
        "s3://bucket/items@home",
        "abfs://box@account.dfs.core.windows.net/items",
        "webhdfs://127.0.0.1:9870/user@home/items",
        "s3://bucket/items?versionId=7",
    ],
)
def test_a_url_without_one_stays_as_it_is(url: str) -> None:
    assert redacted_url(url) == url


def test_what_is_left_of_a_url_still_says_where() -> None:
    assert redacted_url(URLS[0]) == "s3://***@bucket/items"
    assert redacted_url(URLS[-2]) == "abfs://box@account.dfs.core.windows.net/items?sv=2&sig=***&x=1"


OPTIONS: dict[str, Any] = {
    "key": "AKIA",
    "secret": SECRET,
    "client_kwargs": {"aws_secret_access_key": SECRET, "region_name": "us-east-1"},
}


def test_a_place_and_its_storage_show_no_options() -> None:
    place = Place("memory://redaction", options={"password": SECRET})
    shown = repr(place) + str(place) + repr(place.storage()) + repr(ReadOptions.of({"path": "memory://redaction"}))
    assert SECRET not in shown
    assert pickle.loads(pickle.dumps(place)) == place


@pytest.mark.parametrize(
    "options",
    [
        {"delegation": SECRET},
        {"client_kwargs": {"headers": {"Authorization": SECRET}}},
        {"account_key": SECRET},
        {"sas_token": SECRET},
        {"connection_string": f"AccountName=x;AccountKey={SECRET}"},
        {"endpoint_url": f"http://me:{SECRET}@127.0.0.1:1"},
    ],
)
def test_what_a_filesystem_says_is_told_without_the_secret(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FsspecStorage("memory://redaction", **options)

    def fail(*args: object) -> None:
        try:
            raise ConnectionError(f"cannot reach /items?user=me&token={SECRET}")
        except ConnectionError as cause:
            raise OSError(f"Max retries exceeded with url http://me:{SECRET}@127.0.0.1:1") from cause

    for verb in ("create", "put", "read", "exists", "delete"):
        monkeypatch.setattr(storage._backend.__class__, verb, lambda self, *args: fail())
    calls: list[Callable[[], object]] = [
        lambda: storage.create("a", b""),
        lambda: storage.put("a", b""),
        lambda: storage.read("a"),
        lambda: storage.exists("a"),
        lambda: storage.delete("a"),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="Max retries") as failed:
            call()
        assert SECRET not in told(failed.value)


def test_options_that_do_not_fit_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, **options: object) -> None:
        raise ValueError(f"Invalid endpoint: {options}")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(OptionError, match="Invalid endpoint") as refused:
        FsspecStorage("s3://bucket/items", **OPTIONS)
    monkeypatch.undo()
    assert SECRET not in told(refused.value)
    for text in (f"{SECRET}", f'["{SECRET}"]', f'{{"secret": "{SECRET}"'):
        with pytest.raises(OptionError, match="storage_options") as refused:
            ReadOptions.of({"path": "s3://bucket/items", "storage_options": text})
        assert SECRET not in told(refused.value)


def test_a_local_path_names_the_options_that_it_cannot_take() -> None:
    with pytest.raises(OptionError, match="secret") as refused:
        Place("/tmp/items", options=OPTIONS)
    assert SECRET not in told(refused.value)
