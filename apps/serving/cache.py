"""Results that were computed before, kept in memory within bounds, without the texts that they are of."""

import hashlib
import os
from collections import OrderedDict

ENTRY_BYTES = 200
"""What an entry takes beside its value: key, objects, its place in the order."""


class ResultCache:
    """The results asked for of late.

    A key is a digest of model, endpoint, settings and text under a key that is drawn when the process starts: neither a
    text nor anything that could be compared with digests of known texts is kept. Nothing is written to the disk or
    shared with other processes. For one thread.
    """

    def __init__(self, max_bytes: int) -> None:
        """Bound the memory; 0 switches the cache off."""
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._secret = os.urandom(32)
        self._values: OrderedDict[bytes, bytes] = OrderedDict()

    def key(self, *parts: str) -> bytes:
        """Return the key of a result: of model, endpoint, settings, and all texts it is computed from."""
        digest = hashlib.blake2b(key=self._secret, digest_size=16)
        for part in parts:
            # The length keeps "ab", "c" apart from "a", "bc".
            content = part.encode("utf-8", "surrogatepass")
            digest.update(len(content).to_bytes(8, "big"))
            digest.update(content)
        return digest.digest()

    def get(self, key: bytes) -> bytes | None:
        """Return the value that was put under KEY, if it is still there."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value; what was not asked for the longest makes room."""
        size = len(value) + ENTRY_BYTES
        if size > self._max_bytes:
            return
        self._forget(key)
        while self._num_bytes + size > self._max_bytes:
            self._forget(next(iter(self._values)))
        self._values[key] = value
        self._num_bytes += size

    def _forget(self, key: bytes) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._num_bytes -= len(value) + ENTRY_BYTES

    def __len__(self) -> int:
        """Return the number of results that are kept."""
        return len(self._values)

    @property
    def num_bytes(self) -> int:
        """Memory that is taken, about."""
        return self._num_bytes
