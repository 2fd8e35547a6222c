"""Official files: where they are looked for, how they are downloaded, and what is said when they cannot be had."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from corpora import official
from corpora.foundation.errors import DataError, DataUnavailableError
from corpora.official import OfficialFile, data_root, download, locate, verify

Fails = Callable[..., AbstractContextManager[None]]

BYTES = b"id\tdocument\tlabel\n" * 10_000


class Publisher(BaseHTTPRequestHandler):
    """Serves BYTES at every path; `/short` breaks off, `/broken` breaks off in a chunk, `/stalled` falls silent."""

    patience = threading.Event()

    def do_GET(self) -> None:
        """Answer by the path."""
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path == "/broken":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"1000\r\nhalf a chunk")
            return
        self.send_header("Content-Length", str(len(BYTES)))
        self.end_headers()
        self.wfile.write(BYTES if self.path == "/whole" else BYTES[:1000])
        self.wfile.flush()
        if self.path == "/stalled":
            self.patience.wait(5)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture(scope="module")
def publisher() -> Iterator[str]:
    """Run a publisher on this machine; returns its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Publisher.patience.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the user an empty cache; returns the folder for data in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PRESSBERT_DATA", raising=False)
    return tmp_path / "cache" / "pressbert" / "data"


def published(url: str, *, path: str = "nsmc/ratings.txt", sha256: str | None = None) -> OfficialFile:
    return OfficialFile(path, url, "CC0-1.0", sha256=sha256)


def fill(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


NOWHERE = published("http://127.0.0.1:9/ratings.txt")
RIGHT = hashlib.sha256(BYTES).hexdigest()
WRONG = "0" * 64


def test_the_data_root_is_the_option_then_the_variable_then_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_root(None) == cache
    (tmp_path / "variable").mkdir()
    monkeypatch.setenv("PRESSBERT_DATA", str(tmp_path / "variable"))
    assert data_root(None) == tmp_path / "variable"
    assert data_root(tmp_path) == tmp_path


def test_a_named_data_root_that_is_no_folder_is_one_line(
    tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fails(DataError, "--data: ", f"'{tmp_path / 'none'}' is not a folder"):
        data_root(tmp_path / "none")
    monkeypatch.setenv("PRESSBERT_DATA", str(tmp_path / "none"))
    with fails(DataError, "PRESSBERT_DATA: ", "is not a folder"):
        data_root(None)


def test_a_file_is_found_under_the_root_before_the_cache(tmp_path: Path, cache: Path) -> None:
    in_cache = fill(cache / NOWHERE.path)
    assert locate(NOWHERE, tmp_path / "root") == in_cache
    in_root = fill(tmp_path / "root" / NOWHERE.path)
    assert locate(NOWHERE, tmp_path / "root") == in_root


def test_offline_a_missing_file_is_unavailable_with_the_command_that_fetches_it(tmp_path: Path, fails: Fails) -> None:
    command = f"curl -fL --create-dirs -o '{tmp_path / NOWHERE.path}' '{NOWHERE.url}'"
    with fails(DataUnavailableError, f"{NOWHERE.path}: ", "HF_HUB_OFFLINE", command):
        locate(NOWHERE, tmp_path)


def test_the_command_goes_to_the_cache_when_the_root_cannot_be_written(
    tmp_path: Path, cache: Path, fails: Fails
) -> None:
    with fails(DataUnavailableError, NOWHERE.path, f"-o '{cache / NOWHERE.path}'"):
        locate(NOWHERE, tmp_path / "no such root")


def test_a_host_that_does_not_answer_is_unavailable_with_the_command(
    tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with fails(DataUnavailableError, f"{NOWHERE.path}: ", "cannot be reached", "curl -fL"):
        locate(NOWHERE, tmp_path)


@pytest.mark.parametrize("sha256", [RIGHT, None])
def test_a_download_lands_whole_and_alone(tmp_path: Path, publisher: str, sha256: str | None) -> None:
    target = tmp_path / "nsmc" / "ratings.txt"
    download(published(f"{publisher}/whole", sha256=sha256), target)
    assert target.read_bytes() == BYTES
    assert names(target.parent) == ["ratings.txt"]


def test_a_download_with_other_bytes_leaves_nothing_behind(tmp_path: Path, publisher: str, fails: Fails) -> None:
    target = tmp_path / "nsmc" / "ratings.txt"
    with fails(DataError, target, "sha256", RIGHT[:12], WRONG[:12]):
        download(published(f"{publisher}/whole", sha256=WRONG), target)
    assert names(target.parent) == []


def test_a_failed_download_keeps_the_old_file(tmp_path: Path, publisher: str, subtests: pytest.Subtests) -> None:
    for path, sha256 in [("whole", WRONG), ("short", RIGHT), ("missing", None)]:
        with subtests.test(path=path, sha256=sha256):
            target = fill(tmp_path / "nsmc" / "ratings.txt", b"old")
            with pytest.raises((DataError, OSError, HTTPException)):
                download(published(f"{publisher}/{path}", sha256=sha256), target)
            assert target.read_bytes() == b"old"
            assert names(target.parent) == ["ratings.txt"]


def test_a_missing_file_is_downloaded_to_the_root(
    tmp_path: Path, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(official, "_unreachable", lambda _: None)
    file = published(f"{publisher}/whole", sha256=RIGHT)
    assert locate(file, tmp_path) == tmp_path / file.path
    assert (tmp_path / file.path).read_bytes() == BYTES


@pytest.mark.parametrize("path", ["missing", "short", "broken", "stalled"])
def test_a_download_that_breaks_off_is_unavailable_even_without_a_digest_on_record(
    tmp_path: Path, publisher: str, fails: Fails, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(official, "_unreachable", lambda _: None)
    monkeypatch.setattr(official, "TIMEOUT_S", 0.2)
    file = published(f"{publisher}/{path}")
    with fails(DataUnavailableError, f"{file.path}: ", "curl -fL"):
        locate(file, tmp_path)
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == []


def test_verify_compares_bytes_with_the_record(tmp_path: Path, fails: Fails) -> None:
    path = fill(tmp_path / "a", BYTES)
    verify(published("https://a", sha256=RIGHT), path)
    verify(published("https://a"), path)
    with fails(DataError, path, "is not the published"):
        verify(published("https://a", sha256=WRONG), path)
