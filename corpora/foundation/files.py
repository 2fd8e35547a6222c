"""Files: those that come with a package, digests, and atomic writing."""

import ast
import contextlib
import functools
import hashlib
import importlib.resources
import importlib.util
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

import filelock

from corpora.foundation.errors import ResultError, UsageError, cannot_write

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
"""Name of the lock of an output folder."""
PART = ".part"
"""Suffix of temporary files."""
LONGEST_PREFIX = 60
"""Characters of a file's name in that of its temporary file; Hangul has three bytes, and a name at most 255."""


def package_path(package: str, *names: str) -> Path:
    """Return the path of a file or folder that is part of PACKAGE."""
    return Path(str(importlib.resources.files(package).joinpath(*names)))


SAMPLE_ROOT = package_path("corpora", "sample")
"""Folder of the embedded sample."""


def sha256(*paths: Path) -> str:
    """Return the SHA-256 of the concatenated bytes of PATHS, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    return digest.hexdigest()


def fingerprint(value: object) -> str:
    """Return a SHA-256 of VALUE's canonical JSON: equal values give equal digits on every machine."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def code_digest(modules: Iterable[str]) -> str:
    """Return a SHA-256 of the code of MODULES, given by their dotted names; see `syntax_of` for what counts."""
    return fingerprint([module_syntax(name) for name in sorted(set(modules))])


@functools.cache
def module_syntax(name: str) -> str:
    """Return the syntax of the module called NAME; see `syntax_of`."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return syntax_of(Path(spec.origin).read_text(encoding="utf-8"))


def syntax_of(source: str) -> str:
    """Return the syntax tree of Python code as text, without comments, layout, docstrings and imports.

    Imports are left out so that moving a module, or one that it imports, changes no digest.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for body in (value for _, value in ast.iter_fields(node) if isinstance(value, list)):
            body[:] = [item for item in body if not (_is_text(item) or isinstance(item, ast.Import | ast.ImportFrom))]
    return ast.dump(tree)


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@contextlib.contextmanager
def atomic_file(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside PATH and rename it to PATH at the end.

    Readers see the old or the new content, never a part; a kill or a full disk leaves the old file.

    Args:
        path: final path; its folder is created if missing.
        mode: `w` for UTF-8 text, `wb` for bytes.

    Raises:
        ResultError: the folder cannot be created or written, or the disk is full.
    """
    scratch: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(path.parent)
        handle, scratch = _open_scratch(path)
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            scratch.chmod(0o644)
            # Before it is closed, which ends its lock.
            scratch.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if scratch is not None:
            scratch.unlink(missing_ok=True)


def _open_scratch(path: Path) -> tuple[int, Path]:
    """Create a temporary file beside PATH; while it is open it is locked, which says that its writer lives."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:LONGEST_PREFIX]}.", suffix=PART, dir=path.parent)
        if not _try_lock(handle) or os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # taken for an orphan before it was locked


@functools.cache
def _remove_orphans(folder: Path) -> None:
    """Remove temporary files that killed processes have left in a folder; once a process."""
    for path in folder.glob(f".*{PART}"):
        _remove_orphan(path, Path.unlink)


def _remove_orphan(path: Path, remove: Callable[[Path], object]) -> None:
    """Remove a temporary file or folder unless a living process writes to it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if _try_lock(handle):
                remove(path)
        finally:
            os.close(handle)


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Create a folder that is deleted at the end unless it was renamed; those that killed processes left go first.

    Args:
        parent: where it lies; created if missing.
        prefix: of its name, e.g. `.model.`; the same for the same use.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for path in parent.glob(f"{prefix}*"):
        _remove_orphan(path, shutil.rmtree)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        handle = os.open(folder, os.O_RDONLY)
        if not _try_lock(handle) or os.fstat(handle).st_nlink:
            break
        os.close(handle)  # taken for an orphan before it was locked
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _try_lock(handle: int) -> bool:
    """Lock an open file; returns whether that works: not if another process holds it, or where there are no locks."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_text(path: Path, text: str) -> None:
    """Write TEXT to PATH atomically, as UTF-8."""
    with atomic_file(path) as file:
        file.write(text)


def write_json(path: Path, value: object, *, indent: int | None = 1) -> None:
    """Write VALUE to PATH atomically as JSON with Hangul left readable. NaN is refused: it is no JSON."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False) + "\n")


DIGEST_KEY = "digest"
"""Entry of a JSON object of ours: the fingerprint of all others."""


def write_signed(path: Path, value: Mapping[str, Any], *, indent: int | None = 1) -> None:
    """Write a JSON object to PATH atomically, with a digest of itself by which a changed byte is noticed."""
    # As it will be read: tuples are lists, and keys are texts.
    plain = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False))
    write_json(path, plain | {DIGEST_KEY: fingerprint(plain)}, indent=indent)


def parse_signed(text: str, *, is_required: bool = False) -> dict[str, Any]:
    """Parse a JSON object and compare it with its digest, which is removed.

    Args:
        text: what `write_signed` has written.
        is_required: refuse an object without a digest, which earlier versions wrote.

    Raises:
        ValueError: it is no JSON object, or was changed.
    """
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"a {type(content).__name__}, not an object")
    digest = content.pop(DIGEST_KEY, None)
    is_missing = digest is None and (is_required or any(map(_is_almost_digest, content)))
    if is_missing or (digest is not None and digest != fingerprint(content)):
        raise ValueError("changed since it was written: its digest is another one")
    return content


def _is_almost_digest(key: str) -> bool:
    """Whether one changed byte makes a key of the digest's, which would pass for a file without one."""
    return len(key) == len(DIGEST_KEY) and sum(a != b for a, b in zip(key, DIGEST_KEY, strict=True)) == 1


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


@contextlib.contextmanager
def locked(path: Path, label: str = "", *, is_waiting: bool = True, is_kept: bool = True) -> Iterator[None]:
    """Hold the lock file PATH, so that one process at a time does the work. A lock ends with its process.

    Args:
        path: of the lock file; its folder is created if missing.
        label: name of the work in the line that says this process waits; empty: no line.
        is_waiting: whether to wait for a process that holds the lock.
        is_kept: whether the file stays; one in a folder of products does not.

    Raises:
        BlockingIOError: another process holds the lock, and IS_WAITING is false.
        ResultError: the lock file cannot be created.
    """
    lock = filelock.FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            if not is_waiting:
                raise BlockingIOError(f"{path}: locked by another process") from None
            if label:
                sys.stderr.write(f"{label}: another process runs it; waiting\n")
            lock.acquire()
    except NotImplementedError as error:
        # Some network file systems have no locks. Files are still written whole.
        logger.warning("%s: no locks here (%s); do not run the same work twice at once", path, error)
    except BlockingIOError:
        raise
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    finally:
        if not is_kept:
            # Before the release: who waits for it finds that it has no name, and makes another.
            path.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of an output folder, which is an error while another process writes to it.

    Raises:
        UsageError: another process writes to the folder.
        ResultError: the folder cannot be written.
    """
    is_new = not folder.exists()
    try:
        with locked(folder / LOCK_FILE, is_waiting=False, is_kept=False):
            yield
    except BlockingIOError as error:
        if LOCK_FILE not in str(error):
            raise
        fix = "wait for it, or give another folder with --out"
        raise UsageError(folder, "another process writes to it", fix) from error
    finally:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # nothing was written to it


def remove_lock(folder: Path) -> None:
    """Remove the lock file that a process left in a finished folder when it was killed at its very end."""
    if (folder / LOCK_FILE).exists():
        # Another process has it, or nothing may be written here: it stays.
        with (
            contextlib.suppress(BlockingIOError, ResultError),
            locked(folder / LOCK_FILE, is_waiting=False, is_kept=False),
        ):
            pass
