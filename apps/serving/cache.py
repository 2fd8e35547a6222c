"""Results of earlier requests, kept in memory up to a bound, without the texts they were computed from."""

import hashlib
import os
import threading

from cachetools import LRUCache

ENTRY_BYTES = 200
"""What an entry takes besides its value: key, objects, order of use."""


class ResultCache:
    """The results used most recently.

    A key is a digest of model, endpoint, settings and text under a secret drawn when the process starts: neither a text
    nor anything that could be compared with digests of known texts is kept. Nothing is written to disk or shared with
    other processes.
    """

    def __init__(self, max_bytes: int) -> None:
        """Bound the memory; 0 disables the cache."""
        self._secret = os.urandom(32)
        self._lock = threading.Lock()
        self._values: LRUCache[bytes, bytes] = LRUCache(max_bytes, getsizeof=_size_of)

    def key(self, *parts: str) -> bytes:
        """Return the key of a result: of model, endpoint, settings, and all texts it is computed from."""
        digest = hashlib.blake2b(key=self._secret, digest_size=16)
        for part in parts:
            # The length distinguishes "ab", "c" from "a", "bc".
            content = part.encode("utf-8", "surrogatepass")
            digest.update(len(content).to_bytes(8, "big"))
            digest.update(content)
        return digest.digest()

    def get(self, key: bytes) -> bytes | None:
        """Return the value stored under KEY, or None if it was evicted."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value; the least recently used ones are evicted, and one larger than the cache is not stored."""
        if _size_of(value) > self._values.maxsize:
            return
        with self._lock:
            # Otherwise cachetools would make room for the old value and the new one.
            self._values.pop(key, None)
            self._values[key] = value

    def __len__(self) -> int:
        """Return the number of stored results."""
        return len(self._values)

    @property
    def num_bytes(self) -> int:
        """Approximate memory in use."""
        return int(self._values.currsize)


def _size_of(value: bytes) -> int:
    return len(value) + ENTRY_BYTES
