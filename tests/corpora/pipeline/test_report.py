"""What a build leaves beside its shards: report, dropped and rejected records; none of it holds personal data."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.build import BuildConfig, build, main
from corpora.corpus import corpus_texts, read_corpus
from corpora.foundation.errors import DataError, UsageError
from corpora.pipeline.report import CharModel

Write = Callable[[str, str | bytes], Path]

FURNITURE = "이 페이지에 만족하십니까?"
SECRETS = ("010-1234-5678", "900101-1234568", "sky@mail.example", "4111-1111-1111-1111")


def records() -> list[dict[str, str]]:
    made = [
        {
            "id": f"n{k}",
            "title": f"{k}번째 예산",
            "date": f"{2020 + k % 2}-05-01",
            "section": ("정치", "경제")[k % 2],
            "text": f"의회가 {k}번째 본회의에서 예산 {k * 37}억 원을 의결했다.\n{FURNITURE}\n문의는 {SECRETS[k % 4]}",
        }
        for k in range(24)
    ]
    made.append({"id": "short", "text": "짧다"})
    made.append({"id": "english", "text": "The council voted, sky@mail.example, and everybody went home."})
    return made


def test_a_report_counts_and_nothing_in_the_folder_holds_personal_data(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.dumps(record, ensure_ascii=False) for record in records()]
    source = write("a.jsonl", "\n".join([*lines, f'{{"text": "010-1234-5678", {SECRETS[2]}']))
    out = tmp_path / "out"
    manifest = build([source], out, BuildConfig(held_out=0.2))
    assert manifest.totals.masked == {"card": 6, "email": 1, "phone": 6, "resident_number": 6}
    assert manifest.totals.edited == {"email": 6, "repeated_line": 18}
    assert manifest.totals.dropped == {"not_korean": 1, "too_short": 1}
    for path in out.iterdir():
        assert not any(secret in path.read_text(encoding="utf-8") for secret in SECRETS), path.name
    assert "문의는 [전화번호]" in next(corpus_texts(out / "documents-00000.jsonl"))

    report = (out / "report.md").read_text(encoding="utf-8")
    for row in (
        "| a.jsonl | not_korean | 1 |",
        "| a.jsonl | phone | 6 |",
        "| 2020 | 12 |",
        "| 경제 | 12 |",
        "| under 50 | 24 |",
        "| a.jsonl | 이 페이지에 만족하십니까? | 18 |",
    ):
        assert row in report, row
    assert "bits per character" in report

    capsys.readouterr()
    assert main(["--out", str(out), "--inspect", "not_korean"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("not_korean: 1 documents")
    assert "[이메일]" in shown
    with pytest.raises(UsageError, match="did you mean 'too_short'"):
        main(["--out", str(out), "--inspect", "to_short"])


def test_a_changed_byte_of_a_finished_corpus_is_noticed_wherever_it_is(write: Write, tmp_path: Path) -> None:
    source = write("a.jsonl", "\n".join(json.dumps(record) for record in records()))
    out = tmp_path / "out"
    build([source], out, BuildConfig(held_out=0))
    for name in ("documents-00000.jsonl", "manifest.json"):
        good = (out / name).read_bytes()
        for place in range(5, len(good), len(good) // 7):
            bad = bytearray(good)
            bad[place] ^= 1
            (out / name).write_bytes(bytes(bad))
            with pytest.raises(DataError):
                list(read_corpus(out))
        (out / name).write_bytes(good)
    assert len(list(read_corpus(out))) == 24


def test_bits_are_those_of_the_model() -> None:
    model = CharModel()
    model.add("가나" * 500)
    assert model.bits("가나" * 50) / 100 < 0.2
    assert model.bits("다라" * 50) / 100 > 10
    # The first letter: one of two that were seen equally often, interpolated with a uniform distribution.
    assert math.isclose(model.bits("가"), -math.log2((500 + 2 / 0x110000) / 1002))
