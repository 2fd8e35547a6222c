"""Official data files: where they are published, their digests, and downloads.

The data root is `--data`, else `PRESSBERT_DATA`, else the user's cache. A missing file is downloaded from its
official public location and kept only if its SHA-256 is the recorded one.
"""

import functools
import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from tqdm import tqdm

from corpora.foundation.errors import DataError, DataUnavailableError, UsageError
from corpora.foundation.files import atomic_file, sha256

logger = logging.getLogger(__name__)

TIMEOUT_S = 20


@dataclass(frozen=True)
class OfficialFile:
    """One published file."""

    path: str
    """Path under the data root, as published."""
    url: str
    """Official public location."""
    licence: str
    """SPDX expression, or the publisher's words."""
    sha256: str | None = None
    """Of the published bytes; None if no trustworthy record was found."""
    size_bytes: int | None = None
    """Of the published bytes; None where not on record."""
    obtain: str = ""
    """What makes the file where it is not one download, with `{target}` for its path; empty: fetch `url`."""


def data_root(given: Path | None) -> Path:
    """Return the data root: GIVEN, else `PRESSBERT_DATA`, else the user's cache.

    Raises:
        DataError: the folder was named and does not exist.
    """
    named = given or (Path(os.environ["PRESSBERT_DATA"]) if os.environ.get("PRESSBERT_DATA") else None)
    if named is not None and not named.is_dir():
        where = "--data" if given else "PRESSBERT_DATA"
        raise DataError(where, f"'{named}' is not a folder", "give the folder that holds nsmc/, klue/, korquad/")
    return named or cache_root()


def cache_root() -> Path:
    """Return the folder of the user's cache that holds downloaded data.

    Raises:
        UsageError: this process has no home folder.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise UsageError("HOME", "not set, and this user has no folder", "set HOME or XDG_CACHE_HOME") from error
    return root / "pressbert" / "data"


def locate(file: OfficialFile, root: Path) -> Path:
    """Return the path of FILE, and download it if it is missing.

    ROOT is searched first, then the user's cache. Downloads go to ROOT if it is writable, else to the cache.

    Raises:
        DataUnavailableError: it is missing and cannot be downloaded; the message has the command that would help.
        DataError: the downloaded bytes are not the published ones.
    """
    roots = list(dict.fromkeys([root, cache_root()]))
    for folder in roots:
        if (folder / file.path).is_file():
            return folder / file.path
    target = next((folder for folder in roots if os.access(folder, os.W_OK)), roots[-1]) / file.path
    fix = f"run: curl -fL --create-dirs -o '{target}' '{file.url}'"
    if file.obtain:
        what = f"not under {root}, and not published as a file of its own"
        raise DataUnavailableError(file.path, what, file.obtain.format(target=target))
    if os.environ.get("HF_HUB_OFFLINE", "0") not in {"", "0"}:
        raise DataUnavailableError(file.path, f"not under {root}, and HF_HUB_OFFLINE forbids downloads", fix)
    if (refusal := _unreachable(urlsplit(file.url).netloc)) is not None:
        raise DataUnavailableError(file.path, f"not under {root}, and its host cannot be reached ({refusal})", fix)
    try:
        download(file, target)
    except (urllib.error.URLError, TimeoutError, http.client.HTTPException) as error:
        raise DataUnavailableError(file.path, f"not under {root}, and the download failed ({error})", fix) from error
    return target


@functools.cache
def _unreachable(host: str) -> str | None:
    """Return why HOST cannot be reached, or None; cached, so that each process waits once."""
    try:
        with _web().open(f"https://{host}/", timeout=TIMEOUT_S):
            return None
    except urllib.error.HTTPError:
        return None  # it answered
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        return str(getattr(error, "reason", error))


def _web() -> urllib.request.OpenerDirector:
    """Return an opener that speaks HTTP and HTTPS and nothing else: no `file:`, no `ftp:`."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def download(file: OfficialFile, target: Path) -> None:
    """Download FILE to TARGET with a progress bar; TARGET is replaced after its digest is checked.

    Raises:
        DataError: the bytes are not the published ones.
        urllib.error.URLError, http.client.HTTPException: the server fails or sends too little.
    """
    logger.info("downloading %s to %s", file.url, target)
    part = target.with_name(target.name + ".download")
    try:
        with _web().open(file.url, timeout=TIMEOUT_S) as response, atomic_file(part, "wb") as out:
            total = int(response.headers.get("Content-Length") or file.size_bytes or 0) or None
            with tqdm(total=total, unit="B", unit_scale=True, desc=file.path, disable=None) as bar:
                for block in _blocks(response, total):
                    out.write(block)
                    bar.update(len(block))
        verify(file, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _blocks(response: IO[bytes], total: int | None) -> Iterator[bytes]:
    """Yield received blocks; a connection that ends early is an error."""
    received = 0
    try:
        while block := response.read(1 << 16):
            received += len(block)
            yield block
    except OSError as error:  # of the connection; atomic_file reports those of the disk
        raise http.client.HTTPException(f"broken off: {error}") from error
    if total is not None and received < total:
        raise http.client.HTTPException(f"broken off after {received:,} of {total:,} bytes")


def verify(file: OfficialFile, path: Path) -> None:
    """Check the digest of PATH against the record of FILE.

    Raises:
        DataError: the digests differ.
    """
    if file.sha256 is not None and (seen := sha256(path)) != file.sha256:
        what = f"sha256 {seen[:12]}… is not the published {file.sha256[:12]}…"
        raise DataError(path, what, "delete the file and run the command again")
