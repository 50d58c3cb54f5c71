"""Which place becomes which storage, and which is refused."""

from pathlib import Path

import fsspec
import pytest

from strandline.errors import OptionError
from strandline.log.storage.fsspec_storage import FsspecStorage
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage_url import open_storage


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "file:{}", "local://{}", "{}/"])
def test_a_local_path_has_many_forms(tmp_path: Path, form: str) -> None:
    storage = open_storage(form.format(tmp_path / "a stream"))
    assert isinstance(storage, LocalStorage)
    assert storage.url == str(tmp_path / "a stream")


def test_a_relative_path_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("streams/items").url == str(tmp_path / "streams" / "items")
    assert open_storage("a:b").url == str(tmp_path / "a:b")


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_storage("~/items").url == str(tmp_path / "items")
    with pytest.raises(OptionError, match="no such user"):
        open_storage("~nobody-of-this-name/items")


def test_durability_reaches_the_local_storage(tmp_path: Path) -> None:
    assert "durability='os'" in repr(open_storage(str(tmp_path), durability="os"))
    for url in (str(tmp_path), "memory://items"):
        with pytest.raises(OptionError, match="durability"):
            open_storage(url, durability="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["a/../b", "..", "../a", "/a/..", "file:///a/../b", "s3://bucket/../a", "~/../a"])
def test_a_stream_name_with_two_dots_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match=r"the path of a stream has \.\. in it"):
        open_storage(url)


@pytest.mark.parametrize("url", ["", " ", "/", "//", "file://", "file:///", "s3://", "memory://", "s3:///"])
def test_an_empty_path_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match=r"empty|absolute"):
        open_storage(url)


@pytest.mark.parametrize("url", ["a\0b", "file:///a\0", "s3://bucket/\0"])
def test_a_nul_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="NUL"):
        open_storage(url)


def test_a_url_with_one_slash_is_not_taken_for_a_folder() -> None:
    with pytest.raises(OptionError) as caught:
        open_storage("s3:/bucket/items")
    assert "s3://" in caught.value.todo


def test_a_file_url_with_a_host_is_refused() -> None:
    with pytest.raises(OptionError, match="absolute path"):
        open_storage("file://server/share")


def test_a_local_path_takes_no_options(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="endpoint_url"):
        open_storage(str(tmp_path), endpoint_url="x")


def test_any_other_url_goes_to_fsspec() -> None:
    storage = open_storage("memory://items/", durability="os")
    assert isinstance(storage, FsspecStorage)
    assert storage.url == "memory://items"


@pytest.mark.parametrize("protocol", ["hdfs", "http", "https", "ftp", "sftp", "github", "zip", "nonsense"])
def test_a_protocol_without_exclusive_create_is_refused_by_name(protocol: str) -> None:
    with pytest.raises(OptionError, match=f"exclusively on '?{protocol}") as caught:
        open_storage(f"{protocol}://host/items")
    assert "s3" in caught.value.todo
    assert ("webhdfs://" in caught.value.todo) == (protocol == "hdfs")


def test_fsspec_over_local_files_is_refused(tmp_path: Path) -> None:
    for protocol in ("file", "local"):
        with pytest.raises(OptionError, match="exclusively") as caught:
            FsspecStorage(f"{protocol}://{tmp_path}")
        assert "plain path" in caught.value.todo


@pytest.mark.parametrize(
    ("url", "package"), [("gs://b/s", "gcsfs"), ("abfs://c/s", "adlfs"), ("s3a://b/s", "s3fs"), ("az://c/s", "adlfs")]
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, url: str, package: str) -> None:
    def not_installed(*args: object, **kwargs: object) -> None:
        raise ImportError("not installed")

    monkeypatch.setattr(fsspec.core, "url_to_fs", not_installed)
    with pytest.raises(OptionError, match="not installed") as caught:
        open_storage(url)
    assert caught.value.todo == f"pip install {package}"


def test_an_option_that_the_filesystem_does_not_know_is_refused() -> None:
    with pytest.raises(OptionError, match="does not take these options"):
        open_storage("s3://bucket/items", use_listings_cache=True)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError) as caught:
        open_storage("webhdfs://user:secret@host:9870/items")
    assert "secret" not in str(caught.value)
