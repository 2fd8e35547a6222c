"""Near-duplicates: signatures estimate Jaccard indices, copies with changed words go, other texts stay."""

import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

from corpora.build import BuildConfig, build
from corpora.cleaning import CleaningConfig
from corpora.corpus import read_corpus
from corpora.pipeline.duplicates import (
    BANDS,
    MAX_SENTENCE,
    MIN_LETTERS,
    ROWS,
    WIDTH,
    band_keys,
    is_long_enough,
    minhash,
)

Write = Callable[[str, str | bytes], Path]

SYLLABLES = [chr(code) for code in range(ord("가"), ord("힣"), 11)]


def words(rng: np.random.Generator, size: int) -> list[str]:
    return ["".join(rng.choice(SYLLABLES, 3)) for _ in range(size)]


def test_signatures_estimate_jaccard_indices_and_agree_in_bands_as_often_as_theory_says() -> None:
    rng = np.random.default_rng(1)
    errors, proposed, expected = [], 0, 0.0
    for changed in (2, 4, 8, 16) * 25:
        first = words(rng, 100)
        second = first.copy()
        for k in rng.choice(100, changed, replace=False):
            second[k] = words(rng, 1)[0]
        texts = ["".join(first), "".join(second)]
        sets = [{text[k : k + WIDTH] for k in range(len(text) - WIDTH + 1)} for text in texts]
        jaccard = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        minima = minhash(texts)
        errors.append((minima[0] == minima[1]).mean() - jaccard)
        keys = band_keys(minima).reshape(BANDS, 2)
        proposed += bool((keys[:, 0] == keys[:, 1]).any())
        expected += 1 - (1 - jaccard**ROWS) ** BANDS
    assert abs(np.mean(errors)) < 0.02
    assert np.std(errors) < 0.06
    assert abs(proposed - expected) < 12  # three standard deviations


def test_a_signature_does_not_depend_on_the_texts_around_it() -> None:
    rng = np.random.default_rng(2)
    texts = ["".join(words(rng, size)) for size in (40, 900, 20, 35, 9000)]
    together = minhash(texts)
    for k, text in enumerate(texts):
        assert np.array_equal(minhash([text])[0], together[k])


def test_copies_with_a_word_changed_are_one_cluster_and_ranges_of_keys_change_nothing(
    write: Write, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    articles = [words(rng, 80) for _ in range(12)]
    records = []
    for k in range(60):
        article = articles[k % 12].copy()
        article[int(rng.integers(80))] = f"{k}명"
        records.append({"id": str(k), "text": "을 ".join(article)})
    # Half a text is another text.
    records.append({"id": "half", "text": "을 ".join(articles[0][:40] + words(rng, 40))})
    source = write("a.jsonl", "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    config = BuildConfig(held_out=0)
    manifest = build([source], tmp_path / "one", config)
    kept = [document.id for document in read_corpus(tmp_path / "one")]
    assert kept == [*(f"a.jsonl#{k}" for k in range(12)), "a.jsonl#half"]
    assert manifest.totals.dropped == {"near_duplicate": 48}
    with mock.patch("corpora.pipeline.duplicates.RANGE_KEYS", 50):
        build([source], tmp_path / "many", config)
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "many" / path.name).read_bytes() == path.read_bytes(), path.name
    assert "| near-duplicates, 4 to 7 documents | 12 |" in (tmp_path / "one" / "report.md").read_text(encoding="utf-8")


def test_sentences_that_differ_in_a_word_stay_and_items_of_two_sentences_are_copies(
    write: Write, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    expected, records = [], []
    # Letters before the last word, sentences, and whether the second text is a copy of the first.
    cases = (
        (60, 1, False),
        (60, 2, False),
        (150, 1, False),
        (150, 2, True),
        (210, 1, False),
        (210, 3, True),
        (300, 1, True),
        (300, 4, True),
    )
    for number, (num_letters, num_sentences, is_copy) in enumerate(cases):
        parts = np.array_split(words(rng, num_letters // 3), num_sentences)
        text = ". ".join(" ".join(part) for part in parts)
        for name, figure in (("a", 31), ("b", 32)):
            records.append({"id": f"{number}{name}", "text": f"{text} {figure}명이다."})
        expected += [f"a.jsonl#{number}a"] + [f"a.jsonl#{number}b"] * (not is_copy)
    source = write("a.jsonl", "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    cleaning = CleaningConfig(quality=False, min_hangul=0, repeated_lines=0)
    build([source], tmp_path / "corpus", BuildConfig(held_out=0, cleaning=cleaning))
    assert [document.id for document in read_corpus(tmp_path / "corpus")] == expected


def test_the_longest_sentence_without_near_duplicates_is_one_letter_below_the_limit() -> None:
    for length, single, several in (
        (MIN_LETTERS - 1, False, False),
        (MIN_LETTERS, False, True),
        (MAX_SENTENCE - 1, False, True),
        (MAX_SENTENCE, True, True),
    ):
        half = length // 2
        assert is_long_enough("가" * length + ".", length) == single
        assert is_long_enough("가" * half + ". " + "나" * (length - half) + ".", length) == several
        assert is_long_enough("가" * half + "\n" + "나" * (length - half), length) == several  # a line ends a sentence
