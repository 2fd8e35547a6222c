"""Compressed files and archives that others made: the only module that unpacks any, with caps on size and number.

A declared size is never believed: what comes out is counted.
"""

import contextlib
import copy
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from corpora.foundation.errors import DataError
from corpora.foundation.floors import needs

LARGEST_RATIO = 200
"""Unpacked bytes for each packed one; text packs to more than a hundredth."""
SMALL = 1 << 24
"""Bytes up to which the ratio does not matter."""
LARGEST_MEMBER = 1 << 32
"""Bytes of a member of a zip archive that is unpacked to the disk."""
MOST_MEMBERS = 100_000
"""Files of an archive."""
LARGEST_TAR = 1 << 30
"""Bytes of an archive of ours."""
XZ_MEMORY = 1 << 27
"""Bytes of the dictionary of an xz file; the preset 9 needs half of it."""
BLOCK = 1 << 20
BUFFER = 1 << 17
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, LookupError)
"""What a damaged or encrypted archive raises."""
BROKEN_TAR = (tarfile.TarError, lzma.LZMAError, EOFError, ValueError)


# ---- compressed text -----------------------------------------------------------------------------------------------


def open_unpacked(path: Path) -> io.BufferedReader:
    """Open a file for reading bytes; `.gz` and `.zst` are unpacked.

    Raises:
        DataError: while it is read, if it unpacks to more than text does.
    """
    match path.suffix.lower():
        case ".gz":
            return io.BufferedReader(_Unpacked(gzip.open(path, "rb"), path), BUFFER)
        case ".zst":
            needs("pyarrow")
            import pyarrow as pa

            return io.BufferedReader(_Unpacked(pa.input_stream(str(path), compression="zstd"), path), BUFFER)
        case _:
            return path.open("rb")


class _Unpacked(io.RawIOBase):
    """An unpacked file that stops where it unpacks to more than text does."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path, self._size = file, path, 0
        self._largest = max(SMALL, LARGEST_RATIO * path.stat().st_size)

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as it goes."""
        data = self._file.read1(len(buffer))  # as far as it goes without an error
        buffer[: len(data)] = data
        self._size += len(data)
        if self._size > self._largest:
            what = f"unpacks to more than {self._largest:,} bytes, {LARGEST_RATIO} times its size"
            raise DataError(self._path, what, "unpack it yourself if it is text")
        return len(data)

    def close(self) -> None:
        """Close the packed file."""
        self._file.close()
        super().close()


# ---- zip -----------------------------------------------------------------------------------------------------------


class ZipArchive:
    """An open zip archive; its members are read as far as their caps go."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        """Wrap an archive; see `open_zip`."""
        self._archive = archive
        self.members: list[zipfile.ZipInfo] = [each for each in archive.infolist() if not each.is_dir()]
        """Its files, in their order."""

    def blocks(self, member: zipfile.ZipInfo, largest: int = LARGEST_MEMBER) -> Iterator[bytes]:
        """Yield the bytes of a member, however many it really has.

        Raises:
            ValueError: they are more than LARGEST, more than text unpacks to, or not as many as are declared.
        """
        # The declared size may be wrong, and zipfile would stop there.
        unlimited = copy.copy(member)
        unlimited.file_size = largest + 2 * BLOCK
        size, most = 0, min(largest, max(SMALL, LARGEST_RATIO * member.compress_size))
        with self._archive.open(unlimited) as file:
            while block := file.read(BLOCK):
                size += len(block)
                if size > most:
                    raise ValueError(f"{member.filename} unpacks to more than {most:,} bytes")
                if size > member.file_size:
                    what = f"unpacks to more than the {member.file_size:,} bytes it declares"
                    raise ValueError(f"{member.filename} {what}")
                yield block
        if size != member.file_size:
            raise ValueError(f"{member.filename} unpacks to {size:,} bytes, not {member.file_size:,}")

    def read(self, member: zipfile.ZipInfo, largest: int) -> bytes:
        """Return the bytes of a member.

        Raises:
            ValueError: see `blocks`.
        """
        return b"".join(self.blocks(member, largest))


@contextlib.contextmanager
def open_zip(path: Path) -> Iterator[ZipArchive]:
    """Open a zip archive.

    Raises:
        ValueError: it is damaged or encrypted, has too many members, or one unpacks to too much.
        DataError: it is missing or cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > MOST_MEMBERS:
                raise ValueError(f"it has more than {MOST_MEMBERS:,} members")
            yield ZipArchive(archive)
    except BROKEN_ZIP as error:
        raise ValueError(f"not a zip archive, or damaged ({error})") from error
    except OSError as error:
        raise DataError(path, error.strerror or str(error), "check the path and its permissions") from error


def plain_name(member: zipfile.ZipInfo) -> str:
    """Return the last part of a member's name: no folder, and so none outside."""
    return PurePosixPath(member.filename.replace("\\", "/")).name


# ---- tar -----------------------------------------------------------------------------------------------------------


def inflate(content: bytes, largest: int) -> bytes:
    """Unpack a stream of DEFLATE without a header.

    Raises:
        ValueError: it is damaged or cut off, or unpacks to more than LARGEST bytes, or than text does.
    """
    unpacker, most = zlib.decompressobj(-zlib.MAX_WBITS), min(largest, max(SMALL, LARGEST_RATIO * len(content)))
    try:
        unpacked = unpacker.decompress(content, most)
    except zlib.error as error:
        raise ValueError(f"damaged ({error})") from error
    if not unpacker.eof:
        raise ValueError(f"a part is cut off, or unpacks to more than {most:,} bytes")
    return unpacked


class _Xz(io.RawIOBase):
    """An xz file that needs little memory and unpacks to no more than a number of bytes."""

    def __init__(self, file: IO[bytes], largest: int) -> None:
        self._file, self._largest, self._size = file, largest, 0
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as it goes."""
        data = b""
        while not data and not self._decompressor.eof:
            packed = self._file.read(BUFFER) if self._decompressor.needs_input else b""
            if not packed and self._decompressor.needs_input:
                raise EOFError("it is cut off")
            data = self._decompressor.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        self._size += len(data)
        if self._size > self._largest:
            raise ValueError(f"it unpacks to more than {self._largest:,} bytes")
        return len(data)


def unpack_tar(path: Path, folder: Path, *, largest: int = LARGEST_TAR) -> None:
    """Unpack a `.tar.xz` into FOLDER: files and folders alone, none outside of it.

    Raises:
        ValueError: it is damaged, too large, has too many members, or one that is neither a file nor a folder.
        OSError: it cannot be read, or FOLDER cannot be written.
    """
    most = min(largest, max(SMALL, LARGEST_RATIO * path.stat().st_size))
    try:
        with (
            path.open("rb") as packed,
            tarfile.open(fileobj=io.BufferedReader(_Xz(packed, most), BUFFER), mode="r|") as archive,
        ):
            for number, member in enumerate(archive, start=1):
                if number > MOST_MEMBERS:
                    raise ValueError(f"it has more than {MOST_MEMBERS:,} members")
                if not member.isfile() and not member.isdir():
                    raise ValueError(f"'{member.name}' is neither a file nor a folder")
                archive.extract(member, folder, filter="data")
    except BROKEN_TAR as error:
        raise ValueError(str(error) or type(error).__name__) from error


@contextlib.contextmanager
def pack_tar(target: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """Open a `.tar.xz` for writing to TARGET."""
    with tarfile.open(fileobj=target, mode="w:xz") as archive:
        yield archive
