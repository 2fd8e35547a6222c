"""Fixtures for all tests. No test reaches the network; tests on official data files carry the mark `real_data`."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub, which reads it once
if "PYTEST_XDIST_WORKER" in os.environ:
    # Before anything imports torch: processes of two threads each get in each other's way on two cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import gc
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from corpora.foundation.errors import SuiteError

# The same examples on every run, whatever machine it is and however slow, and nothing remembered in the work tree.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("suite")


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Leave what is imported out of later garbage collections: every training begins with some, half a second each."""
    gc.collect()
    gc.freeze()


LOCAL = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""}


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Bar sockets to other machines in the whole suite; the server and the demo are tested on this one."""
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            raise AssertionError(f"a test reaches for the network: {address[0]}")
        connect(self, address)

    def resolve_here(host: Any, *arguments: Any, **options: Any) -> Any:
        if not is_local(host):
            raise AssertionError(f"a test reaches for the network: {host}")
        return resolve(host, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_here)
        patch.setattr(socket, "getaddrinfo", resolve_here)
        yield


def is_local(host: Any) -> bool:
    """Whether an address is one of this machine."""
    name = host.decode() if isinstance(host, bytes) else str(host or "")
    return name in LOCAL or name.startswith("127.") or name == socket.gethostname()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of the official data files, or skip."""
    root = os.environ.get("PRESSBERT_DATA", "")
    if not Path(root or "/nonexistent").is_dir():
        pytest.skip("set PRESSBERT_DATA to the folder that holds nsmc/, klue/ and korquad/ to run this test")
    return Path(root)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of a Chromium, or skip."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        pytest.skip("apt-get install chromium fonts-noto-cjk to run this test")
    return found[0]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Return a function that writes a file below a fresh folder: text as UTF-8, bytes as they are."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_file


@pytest.fixture
def fails() -> Callable[..., AbstractContextManager[None]]:
    """Return a context whose body must raise a KIND of `SuiteError`: one line, WHERE first, WHAT and a remedy in it."""

    @contextlib.contextmanager
    def expect(kind: type[SuiteError], where: object, *what: str) -> Iterator[None]:
        with pytest.raises(kind) as caught:
            yield
        error = caught.value
        assert str(error).startswith(str(where))
        assert len(str(error).splitlines()) == 1
        assert all(part in str(error) for part in what)
        assert error.what
        assert error.fix

    return expect
