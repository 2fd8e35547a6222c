"""Comments: what hides a word is seen through, offsets are those of the raw text, softened comments pass."""

import json
import random
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import CheckpointError, DataError, SuiteError
from downstream.moderate.__main__ import main, record_files
from downstream.moderate.evasion import DISGUISES, disguise
from downstream.moderate.features import NgramSpace, jamo_stream, ngram_hashes
from downstream.moderate.model import Moderator, Probabilities, units_of
from downstream.moderate.normalization import read, readings
from downstream.moderate.softening import (
    FEWEST_UNITS,
    LATER_CHARACTERS,
    MANNERS,
    MAX_EDITS,
    SCORED_CHARACTERS,
    apply,
    share_kept,
    soften_with,
)
from downstream.moderate.sources import Comment, CommentSource, read_comments
from downstream.moderate.training import Examples, ModeratorRecipe, fit

PRAISE = (
    "연기가 참 좋았다",
    "노래를 잘하네요",
    "다음 편도 기다려요",
    "늘 응원합니다",
    "화면이 아름답다",
    "웃음이 나온다",
)
ABUSE = ("이 멍청한 놈아", "저 놈은 쓰레기다", "멍청한 소리 하네", "쓰레기 같은 놈", "멍청한 쓰레기", "놈들이 멍청하다")
HOSTILE = (
    "", " ", "\n\t", "\ud800\udc00\ud8ff", "\u200b" * 50, "ㅋ" * 3000, "가" * 3000, "1" * 400, "😀" * 200, "\u0301" * 9,
    "ᄀ" * 70, "ﾡﾢ", "ｓｉ발", "a" * 5000, "<script>alert(1)</script>", "\x00\x1b[31m", "가\u0301나",
    "\U0001d4fc\U0001d4f2", "㉠㉡",
)  # fmt: skip


@pytest.fixture(scope="module")
def moderator() -> Moderator:
    """Return a model of a few comments, without an encoder."""
    comments = [
        Comment(f"{text} {k}", label, "ours")
        for label, texts in (("none", PRAISE), ("hate", ABUSE))
        for k, text in enumerate(texts * 6)
    ]
    recipe = ModeratorRecipe(
        sources=[CommentSource(name="ours", path="x", layout="beep")], encoder=None, min_frequency=2
    )
    examples = Examples.from_comments(comments, None)
    model = fit(recipe, examples, examples.take([]), None)
    assert model.settings.thresholds
    return replace(model, settings=model.settings.model_copy(update={"thresholds": {"0.80": 0.5}}))


def test_what_hides_a_word_is_seen_through() -> None:
    cases = {
        "ㅅㅣㅂㅏㄹ 놈": "시발 놈", "시1발": "시발", "시😀발": "시발", "씨이이이발": "씨발", "시 발 놈 들": "시발놈들",
        "tlqkf 뭐": "시발 뭐",
        "시8 놈": "시발 놈", "ㅅ1발": "시발", unicodedata.normalize("NFD", "병신"): "병신", "시\u200b발": "시발",
        "ㅋㅋㅋㅋㅋ": "ㅋㅋ", "병.신": "병신", "바보보보": "바보",
        # Numbers, sentences without a blank between them and Latin words stay.
        "2018년 5월 3일": "2018년 5월 3일", "오후3시": "오후3시", "진짜?그래": "진짜?그래", "sports": "sports",
    }  # fmt: skip
    assert {text: read(text, is_read=False).text for text in cases} == cases
    assert [reading.text for reading in readings("4람이다")] == ["4람이다", "사람이다"]
    assert jamo_stream(read("벼ㅇ신", is_read=False)) == jamo_stream(read("병신", is_read=False))


def test_every_character_of_a_reading_has_its_origin() -> None:
    for text in ("ㅅㅣㅂㅏㄹ 놈", "시1발 놈", unicodedata.normalize("NFD", "이 병신아"), *HOSTILE):
        for reading in readings(text):
            starts = reading.origins
            assert starts == sorted(starts), text
            assert all(0 <= c.start < c.end <= len(text) for c in reading.characters), text
    [first, second] = read("ㅅㅣ발", is_read=False).characters
    assert (first.start, first.end, second.start) == (0, 2, 2)


def test_disguised_comments_read_nearly_as_before() -> None:
    draw = random.Random(0)  # noqa: S311
    for kind in DISGUISES:
        same = total = 0
        for text in (*PRAISE, *ABUSE):
            hidden = disguise(text, kind, draw)
            assert hidden != text, (kind, text)
            whole = jamo_stream(read(text, is_read=False))
            same += any(jamo_stream(reading) == whole for reading in readings(hidden))
            total += 1
        assert same / total >= 0.9, kind


def test_ngrams_that_are_rare_or_unknown_weigh_nothing() -> None:
    texts = [ngram_hashes(stream) for stream in ("^ㄱㅏㄴㅏ^", "^ㄱㅏㄷㅏ^", "^ㄱㅏㄴㅏ^")]
    space = NgramSpace.fit(texts, 2)
    indices, values = space.vector(texts[0])
    assert np.linalg.norm(values) == pytest.approx(1)
    assert (space.matrix(texts)[[0]].toarray()[0][indices] == values).all()
    assert not len(space.vector(ngram_hashes("^ㅋㅋㅋ^"))[0])
    assert len(ngram_hashes("^^")) == 0


def test_abuse_is_flagged_with_its_words_and_praise_is_not(moderator: Moderator) -> None:
    assert moderator.labels == ("none", "hate")
    for text in ("멍청한 놈", "정말 쓰레기 같은 놈이네", "멍1청한 ㄴㅗㅁ", "쓰😀레기 놈", "멍 청 한 놈"):
        found = moderator.moderate(text)
        assert found.is_flagged, text
        assert found.spans, text
        assert all(text[span.start : span.end] == span.text for span in found.spans), text
        assert sum(found.probabilities.values()) == pytest.approx(1)
    for text in ("연기가 좋았다", "응원합니다"):
        assert not moderator.moderate(text).is_flagged, text


def test_softened_comments_pass_and_keep_the_rest(moderator: Moderator) -> None:
    text = "그 멍청한 놈은 쓰레기\n멍청한 소리 하는 놈들이 또 나왔다"
    proposals = soften_with(moderator, text)
    assert [each.manner for each in proposals] == ["mask", "neutral", "omit"]
    for each in proposals:
        assert each.is_below == (each.score < moderator.threshold(0.8))
        assert all(text[edit.start : edit.end] == edit.text for edit in each.edits)
        assert "\n" in each.text
        assert each.is_below, each
        assert 0 <= each.kept < 1
        assert apply(text, {(e.start, e.end): e.replacement for e in each.edits}, each.manner) == each.text
    assert "○" in proposals[0].text
    assert soften_with(moderator, "연기가 좋았다") == ()
    for each in soften_with(moderator, "쓰레기 " + "연기가 좋았다 " * 60 + "멍청한 놈들"):
        assert "연기가 좋았다" in each.text, "of a long comment, the heavy parts are edited"
    assert share_kept([(0, 2), (3, 4), (5, 6), (7, 8)], [(0, 2)]) == 0.75
    assert share_kept([], [(0, 2)]) == 1


def test_after_each_edit_of_a_long_comment_only_the_heaviest_words_are_tried(
    moderator: Moderator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that each of 20 insults raises, so that the last edits that are tried do not suffice either."""
    text = " ".join(f"쓰레기 같은 놈 {k} 멍청한 소리" for k in range(20))
    scored: list[int] = []

    def probabilities(_self: Moderator, texts: Sequence[str], _headlines: object = None) -> Probabilities:
        scored.append(sum(map(len, texts)))
        heavy = np.array([0.6 + 0.01 * (t.count("쓰레기") + t.count("멍청")) for t in texts])
        return np.stack([heavy if label == "hate" else 1 - heavy for label in moderator.labels], axis=1)

    monkeypatch.setattr(Moderator, "probabilities", probabilities)
    found = soften_with(moderator, text)
    assert (len(found[0].edits), {each.is_below for each in found}) == (MAX_EDITS, {False})
    later = max(LATER_CHARACTERS, FEWEST_UNITS * len(text))
    assert sum(scored) <= len(text) + len(MANNERS) * (SCORED_CHARACTERS + MAX_EDITS * later) + SCORED_CHARACTERS


def test_of_two_edits_that_suffice_the_one_that_leaves_the_content_words_is_proposed(
    moderator: Moderator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that falls below the threshold without 아이고, an interjection, and further without the noun 쓰레기."""

    def probabilities(_self: Moderator, texts: Sequence[str], _headlines: object = None) -> Probabilities:
        heavy = np.array([0.9 if "아이고" in t and "쓰레기" in t else 0.4 if "쓰레기" in t else 0.2 for t in texts])
        return np.stack([heavy if label == "hate" else 1 - heavy for label in moderator.labels], axis=1)

    monkeypatch.setattr(Moderator, "probabilities", probabilities)
    for each in soften_with(moderator, "아이고 쓰레기"):
        assert [edit.text.strip() for edit in each.edits] == ["아이고"], each
        assert (each.kept, each.is_below) == (1, True)


def test_hostile_comments_neither_crash_nor_shift_offsets(moderator: Moderator) -> None:
    draw = random.Random(1)  # noqa: S311
    pieces = [*HOSTILE[:3], *(text[:40] for text in HOSTILE[3:]), *ABUSE]
    texts = [*HOSTILE, *("".join(draw.choices(pieces, k=3)) for _ in range(1000))]
    rows = moderator.probabilities(texts)
    assert np.isfinite(rows).all()
    assert rows.sum(axis=1) == pytest.approx(1)
    for text in texts[:60]:
        assert all(text[span.start : span.end] == span.text for span in moderator.spans(text)), text
        assert all(0 <= start < end <= len(text) for start, end in units_of(text))


def test_wrong_arguments_are_refused(moderator: Moderator) -> None:
    for texts, headlines in (("댓글", None), ([1], None), (["댓글"], []), (["댓글"], [3])):
        with pytest.raises(ValueError, match=r"string|headlines"):
            moderator.probabilities(texts, headlines)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="thresholds for"):
        moderator.moderate("댓글", precision=0.123)


def test_a_saved_model_answers_the_same_and_a_damaged_one_is_one_line(moderator: Moderator, tmp_path: Path) -> None:
    moderator.save(tmp_path / "model")
    again = Moderator.load(tmp_path / "model")
    assert again.probabilities(ABUSE) == pytest.approx(moderator.probabilities(ABUSE), abs=1e-6)
    assert sum(file.stat().st_size for file in (tmp_path / "model").iterdir()) < 10_000_000
    (tmp_path / "model" / "moderator.safetensors").write_bytes(b"x")
    for folder in (tmp_path / "model", tmp_path / "missing"):
        with pytest.raises(CheckpointError) as caught:
            Moderator.load(folder)
        assert len(str(caught.value).splitlines()) == 1


def test_the_manifest_of_the_bundle_lists_the_files(moderator: Moderator, tmp_path: Path) -> None:
    manifest = {"schema": 1, "files": {"moderator/old": {}, "encoder/config.json": {"size_bytes": 1}}}
    (tmp_path / "MANIFEST.json").write_text(json.dumps(manifest), encoding="utf-8")
    moderator.save(tmp_path / "moderator")
    (tmp_path / "moderator" / ".lock").touch()
    record_files(tmp_path / "moderator")
    files = json.loads((tmp_path / "MANIFEST.json").read_text(encoding="utf-8"))["files"]
    named = {"moderator/README.md", "moderator/moderator.json", "moderator/moderator.safetensors"}
    assert set(files) == {"encoder/config.json"} | named


def test_comments_without_a_grade_are_divided_as_the_graded_ones_are() -> None:
    graded = [
        Comment(f"{text} {k}", label, "a")
        for label, texts in (("none", PRAISE), ("offensive", ABUSE))
        for k, text in enumerate(texts * 3)
    ]
    ungraded = [Comment(f"{text} {k}", "harmful", "b") for k, text in enumerate(ABUSE * 3)]
    recipe = ModeratorRecipe(sources=[CommentSource(name="a", path="x", layout="beep")], encoder=None, min_frequency=2)
    examples = Examples.from_comments(
        [*graded, *ungraded, Comment("그 놈 혐오한다 역겹다", "hate", "a"), Comment("역겹다 혐오", "hate", "a")], None
    )
    [row] = fit(recipe, examples, examples.take([]), None).probabilities(["멍청한 놈"])
    assert row.argmax() == 1


def test_the_line_between_labels_is_that_of_the_graded_source() -> None:
    """Of a text without a known n-gram, half is harmful in the graded source, and little in the other."""
    graded = [
        Comment(f"{text} {k}", label, "a")
        for label, texts in (("none", PRAISE), ("offensive", ABUSE[:3]), ("hate", ABUSE[3:]))
        for k, text in enumerate(texts * 3)
    ]
    other = [Comment(f"{text} {k}", "none", "b") for k, text in enumerate(PRAISE * 20)]
    recipe = ModeratorRecipe(sources=[CommentSource(name="a", path="x", layout="beep")], encoder=None, min_frequency=2)

    def harmless(comments: list[Comment]) -> float:
        examples = Examples.from_comments(comments, None)
        return float(fit(recipe, examples, examples.take([]), None).probabilities(["ZQX"])[0, 0])

    of_both = harmless([*graded, *other, Comment("멍청한 놈", "harmful", "b")])
    without_a_source = harmless([replace(comment, source="a") for comment in (*graded, *other)])
    assert abs(of_both - harmless(graded)) < abs(without_a_source - harmless(graded)) / 2


def test_sources_are_read_and_wrong_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "beep.tsv").write_text(
        "comments\tcontain_gender_bias\tbias\thate\n좋다\tFalse\tnone\tnone\n나쁜 놈\tFalse\tothers\thate\n",
        encoding="utf-8",
    )
    (tmp_path / "titles.txt").write_text('"제목 하나"\n제목 둘\n', encoding="utf-8")
    (tmp_path / "kmhas.txt").write_text("document\tlabel\n좋다\t8\n미친 돼지\t1,3\n", encoding="utf-8")
    source = CommentSource(name="beep", path="beep.tsv", layout="beep", headlines="titles.txt")
    assert [(c.label, c.headline) for c in read_comments(source, tmp_path)] == [
        ("none", "제목 하나"),
        ("hate", "제목 둘"),
    ]
    kmhas = CommentSource(name="k", path="kmhas.txt", layout="kmhas")
    assert [c.label for c in read_comments(kmhas, tmp_path)] == ["none", "harmful"]
    (tmp_path / "titles.txt").write_text("제목\n", encoding="utf-8")
    with pytest.raises(DataError, match="1 headlines for 2 comments"):
        read_comments(source, tmp_path)
    with pytest.raises(SuiteError, match="no such file"):
        read_comments(CommentSource(name="x", path="none.tsv", layout="beep"), tmp_path)


def test_the_command_prints_labels_and_proposals(
    moderator: Moderator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moderator.save(tmp_path / "model")
    (tmp_path / "comments.txt").write_text("연기가 좋았다\n이 멍청한 놈아\n", encoding="utf-8")
    options = [str(tmp_path / "comments.txt"), "--model", str(tmp_path / "model"), "--soften"]
    assert main([*options, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["is_flagged"] for row in rows] == [False, True]
    assert len(rows[1]["softened"]) == 3
    assert main(options) == 0
    assert capsys.readouterr().out.count("\n") == 5
    with pytest.raises(SuiteError, match="choose from"):
        main([*options, "--precision", "0.11"])
