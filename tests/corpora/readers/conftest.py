"""Compound files, in which old Excel workbooks and HWP documents are written."""

import struct
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

SECTOR, MINI_SECTOR, LEAST = 512, 64, 4096
"""Bytes of a sector, of a small one, and of the smallest stream that has sectors of its own."""
FREE, END, TABLE = -1, -2, -3


@pytest.fixture(scope="session")
def compound_file() -> Callable[[Mapping[str, bytes]], bytes]:
    """Return a function that writes streams by their paths into a compound file ([MS-CFB]) of at most 64 KiB."""
    return _compound_file


def _compound_file(streams: Mapping[str, bytes]) -> bytes:
    names = sorted({path.split("/")[0] for path in streams if "/" in path}) + list(streams)
    small = {path: content for path, content in streams.items() if len(content) < LEAST}
    mini = b"".join(_padded(content, MINI_SECTOR) for content in small.values())
    num_folder = -(-(len(names) + 1) // 4)
    parts = [_padded(mini, SECTOR), *(_padded(streams[path], SECTOR) for path in streams if path not in small)]
    table, first_of = [TABLE, *_chain(1, num_folder), END], []
    for part in parts:
        first_of.append(len(table) if part else END)
        table += _chain(len(table), len(part) // SECTOR)
    mini_table: list[int] = []
    starts: dict[str, int] = {}
    for path, content in small.items():
        starts[path] = len(mini_table)
        mini_table += _chain(len(mini_table), len(_padded(content, MINI_SECTOR)) // MINI_SECTOR)
    starts |= dict(zip((path for path in streams if path not in small), first_of[1:], strict=True))
    inside = {name: [k for k, path in enumerate(names, start=1) if path.startswith(f"{name}/")] for name in names}
    top = [k for k, path in enumerate(names, start=1) if "/" not in path]
    following = {a: b for group in (top, *inside.values()) for a, b in pairwise(group)}
    folder = _entry("Root Entry", 5, (FREE, top[0]), first_of[0], len(mini))
    for number, path in enumerate(names, start=1):
        near = (following.get(number, FREE), inside[path][0] if inside[path] else FREE)
        size = len(streams.get(path, b""))
        folder += _entry(path.split("/")[-1], 2 if path in streams else 1, near, starts.get(path, 0), size)
    magic = bytes.fromhex("d0cf11e0a1b11ae1")
    sizes = (0x3E, 3, 0xFFFE, 9, 6, 0, 1, 1, 0, LEAST, 1 + num_folder, 1, END, 0)
    header = struct.pack("<8s16x5H6xIIiIIiIiI", magic, *sizes) + struct.pack("<109i", 0, *[FREE] * 108)
    tables = [struct.pack("<128i", *each, *[FREE] * (128 - len(each))) for each in (table, mini_table)]
    return b"".join((header, tables[0], folder.ljust(num_folder * SECTOR, b"\0"), tables[1], *parts))


def _padded(content: bytes, size: int) -> bytes:
    return content.ljust(-(-len(content) // size) * size, b"\0")


def _chain(first: int, number: int) -> list[int]:
    """Return the entries of the table for NUMBER sectors in a row."""
    return [*range(first + 1, first + number), END] if number else []


def _entry(name: str, kind: int, near: tuple[int, int], first: int, size: int) -> bytes:
    coded = f"{name}\0".encode("utf-16-le")
    place = struct.pack("<HBBiii", len(coded), kind, 1, FREE, *near)
    return coded.ljust(64, b"\0") + place + bytes(36) + struct.pack("<iQ", first, size)
