"""The files of a contamination check come back as they were written."""

from pathlib import Path

from eval.contamination.files import EXCERPT, HIT_COLUMNS, Hit, excerpt, read_hits, write_hits


def test_hits_come_back_as_they_were_written(tmp_path: Path) -> None:
    hits = [
        Hit(
            measure="minhash",
            example='a\t"b"\nc',
            position=7,
            field="pair",
            num_letters=3,
            similarity=0.8125,
            num_documents=2,
            document="문서 1",
            text="가\u2028나 👍 'x' \"y",
            snippet="…말\t했다",
        )
    ]
    path = tmp_path / "hits.tsv"
    write_hits(path, hits)
    assert read_hits(path) == hits
    first, _ = path.read_text(encoding="utf-8").split("\n", 1)
    assert first.split("\t") == list(HIT_COLUMNS.values())
    write_hits(path, [hits[0].model_copy(update={"text": "반쪽 \ud800"})])
    assert read_hits(path)[0].text == "반쪽 ?"


def test_an_excerpt_shows_every_measure_and_keeps_the_order() -> None:
    hit = Hit(
        measure="exact",
        example="e",
        position=0,
        field="text",
        num_letters=9,
        similarity=1.0,
        num_documents=1,
        document="d",
        text="글",
        snippet="글",
    )
    hits = [hit.model_copy(update={"position": k}) for k in range(50)]
    hits += [hit.model_copy(update={"measure": "minhash", "position": k}) for k in range(3)]
    shown = excerpt(hits)
    assert [(hit.measure, hit.position) for hit in shown] == [
        *(("exact", k) for k in range(EXCERPT - 3)),
        *(("minhash", k) for k in range(3)),
    ]
    assert excerpt(hits[:7]) == hits[:7]
    assert excerpt([]) == []
