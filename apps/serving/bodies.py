"""Bodies of requests: JSON, plain or packed with gzip, within a number of bytes, and in time."""

import asyncio
import zlib
from collections.abc import Iterator, Mapping

from starlette.types import Receive

from apps.serving.refusals import RefusalError
from apps.serving.services import Settings

DISCARD_FACTOR = 4
"""Bodies up to this multiple of the limit are read before they are refused; larger ones are not read at all."""
CLOSE = {"connection": "close"}
MOST_MEMBERS = 64
"""Of a gzip stream; clients send one, and each further one copies what is left."""
GZIP = ("gzip", "x-gzip")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


async def read_body(headers: Mapping[bytes, str], receive: Receive, settings: Settings) -> bytes:
    """Return the unpacked body of a request.

    Raises:
        RefusalError: it is no JSON, too large (packed or unpacked), damaged, or does not arrive in time.
    """
    limit = settings.max_body_bytes
    kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
    coding = headers.get(b"content-encoding", "").strip().lower()
    too_large = RefusalError(413, "detail.too_large", headers=CLOSE, limit=limit)
    declared = headers.get(b"content-length", "0")
    most = DISCARD_FACTOR * limit
    if not declared.isascii() or not declared.isdigit() or int(declared) > most:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusalError(400, "detail.ended_early")
                part = message.get("body", b"")
                size += len(part)
                if size > most:
                    raise too_large
                if size <= limit:
                    parts.append(part)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise RefusalError(408, "detail.too_slow", headers=CLOSE, seconds=settings.body_timeout_s) from None
    # Only now: a client refused while sending would see a broken connection instead of the reason.
    if size > limit:
        raise too_large
    if kind != "application/json" or coding not in ("", "identity", *GZIP):
        raise RefusalError(415, "detail.not_json", headers={"accept-encoding": "gzip, identity"})
    body = b"".join(parts)
    if coding in GZIP:
        body = unpack(body, limit)
    return body.removeprefix(BYTE_ORDER_MARK)


def unpack(packed: bytes, limit: int) -> bytes:
    """Unpack gzip; no more than LIMIT bytes are ever in memory.

    Raises:
        RefusalError: it unpacks to more, or is damaged.
    """
    parts: list[bytes] = []
    size = 0
    try:
        for part in _members(packed, limit):
            size += len(part)
            if size > limit:
                raise RefusalError(413, "detail.too_large_unpacked", limit=limit)
            parts.append(part)
    except zlib.error:
        raise RefusalError(400, "detail.damaged_gzip") from None
    return b"".join(parts)


def _members(packed: bytes, limit: int) -> Iterator[bytes]:
    """Yield the content of each member of a gzip stream, at most one byte over the limit each."""
    for _ in range(MOST_MEMBERS):
        if not packed:
            return
        member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        content = member.decompress(packed, limit + 1)
        yield content
        if len(content) <= limit and not member.eof:
            raise zlib.error("truncated")
        packed = member.unused_data
    raise zlib.error("too many members")
