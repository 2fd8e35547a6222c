"""A thousand files with generated faults: every record is accepted or rejected, and what is cut off is said."""

import gzip
import random
from collections import Counter
from pathlib import Path

from corpora.documents import RejectedRecord, read_documents
from corpora.foundation.errors import DataError

NUM_FILES, NUM_RECORDS = 1_000, 12
FAULTS = {
    "bad bytes": b'{"text": "\xff\xfe\xff"}',
    "NUL": b'{"text": "a\x00b"}',
    "NUL outside of strings": b"\x00\x00\x00",
    "half a record": b'{"text": "',
    "no object": b"[1, 2]",
    "no text": b'{"title": "x"}',
    "CP949": '{"text": "본문을 옛 부호로 적었다"}'.encode("cp949"),
    "a long line": b'{"text": "' + b"x" * 300_000,
}


def test_accepted_and_rejected_are_the_records_of_a_thousand_files(tmp_path: Path) -> None:
    rng = random.Random(0)  # noqa: S311 - no secrets
    found = Counter[str]()
    for number in range(NUM_FILES):
        kind = rng.choice([*FAULTS, "cut gzip"])
        lines = [f'{{"text": "본문 {number}의 {k}번째 기사다."}}'.encode() for k in range(NUM_RECORDS)]
        if kind in FAULTS:
            lines.insert(rng.randrange(NUM_RECORDS + 1), FAULTS[kind])
        content = b"\n".join(lines) + b"\n"
        path = tmp_path / f"{number}.jsonl"
        if kind == "cut gzip" or rng.random() < 0.3:
            path = path.with_suffix(".jsonl.gz")
            content = gzip.compress(content, 1)
        if kind == "cut gzip":
            content = content[: rng.randrange(20, len(content) - 1)]
        path.write_bytes(content)
        rejected: list[RejectedRecord] = []
        try:
            accepted = len(list(read_documents(path, rejected=rejected)))
        except DataError:
            found[f"{kind}: refused"] += 1
            assert kind == "cut gzip", kind
            continue
        found[f"{kind}: read"] += 1
        if kind == "cut gzip":
            assert rejected, "a part of the file is lost and nothing is said"
        else:
            assert accepted + len(rejected) == NUM_RECORDS + 1, (kind, accepted, rejected)
        path.unlink()
    assert sum(found.values()) == NUM_FILES, found
