"""Overlap of texts: planted copies of every kind, a plain reference of all measures, and texts of the hostile kind."""

import doctest
import tracemalloc
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpora.overlap
from corpora.cleaning import letters_of
from corpora.overlap import MEASURES, EvaluationIndex, Match, Measure, OverlapConfig
from corpora.sentences import split_by_rules
from corpora.training_text import Block, TrainingText, blocks_of

SYLLABLES = [chr(code) for code in range(ord("가"), ord("힣"), 19)]


def training(*documents: str | tuple[str, ...]) -> list[TrainingText]:
    return [
        TrainingText(str(number), (parts,) if isinstance(parts, str) else parts)
        for number, parts in enumerate(documents)
    ]


def find(
    texts: Sequence[str], documents: Sequence[TrainingText], config: OverlapConfig | None = None, size: int = 10**6
) -> EvaluationIndex:
    index = EvaluationIndex(texts, config)
    for block in blocks_of(documents, size):
        index.scan(block)
    return index


def touched(index: EvaluationIndex) -> dict[Measure, list[int]]:
    return {measure: [match.text for match in index.matches(measure)] for measure in MEASURES}


def syllables(rng: np.random.Generator, number: int) -> str:
    return "".join(rng.choice(SYLLABLES, number))


def words(rng: np.random.Generator, number: int) -> list[str]:
    return [syllables(rng, 3) for _ in range(number)]


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(corpora.overlap).failed == 0


def test_only_letters_and_digits_count(subtests: pytest.Subtests) -> None:
    for text, letters in [
        ("금리가 3.5%로, “올랐다”!", "금리가35로올랐다"),
        ("KOSPI_200 Straße", "kospi200strasse"),
        ("👍👍 ^^ ~ ♥ \n", ""),
        ("ㅋㅋ ㅠ.ㅠ 李", "ㅋㅋㅠㅠ李"),
    ]:
        with subtests.test(text=text, letters=letters):
            assert letters_of(text) == letters


# ---- each measure ----


def test_exact_copies_are_titles_texts_or_lines_as_nfc() -> None:
    text = "총재는 말을 아꼈다."
    copies = training(
        text,
        (text, "본문은 다르다."),
        f"첫 줄이다.\n  {text}\t\n끝 줄이다.",
        unicodedata.normalize("NFD", text),
    )
    others = training("총재는 말을 아꼈다", "총재는  말을 아꼈다.", f"{text} 그리고 웃었다.", "총재는 말을\n아꼈다.")
    index = find([text], [*copies, *others])
    (match,) = index.matches("exact")
    assert (match.similarity, match.num_documents, match.document, match.snippet) == (1, 4, "0", text)
    assert index.num_documents("exact") == 4
    assert find([unicodedata.normalize("NFD", text)], copies).num_documents("exact") == 4
    assert touched(find([text], others))["exact"] == []


def test_case_white_space_and_punctuation_make_no_difference_when_normalised() -> None:
    texts = ["KOSPI가 올랐다.", "재밌다", "올랐다"]
    index = find(texts, training("‘Kospi’가\u3000올 랐다…", "재밌다!!! 👍", "너무 재밌다."))
    assert touched(index) == {"exact": [], "normalised": [0, 1], "ngram": [], "letter_ngram": [], "minhash": [0]}
    assert [(match.num_documents, match.document) for match in index.matches("normalised")] == [(1, "0"), (1, "1")]


def test_a_text_of_twenty_letters_is_found_within_a_longer_one_and_a_shorter_is_not() -> None:
    twenty = "가나다라마바사아자차카타파하거너더러머버"
    texts = [twenty, twenty[:19]]
    within = f"그는 말했다 “{twenty[:7]} {twenty[7:15]}, {twenty[15:]}”라고 하며 웃었다"
    index = find(texts, training(within, (twenty[:10], twenty[10:]), twenty[:19]))
    assert [(match.text, match.document) for match in index.matches("normalised")] == [(0, "0"), (1, "2")]
    assert index.matches("normalised")[0].num_documents == 1
    snippet = index.matches("normalised")[0].snippet
    assert "가나다라마바사 아자차카타파하거" in snippet


def test_thirteen_eojeol_in_a_row_touch_and_twelve_do_not() -> None:
    eojeol = words(np.random.default_rng(1), 20)
    texts = [" ".join(eojeol), " ".join(eojeol[:12])]
    apart = training(" ".join([*eojeol[:12], "그리고", *eojeol[12:]]), (" ".join(eojeol[:7]), " ".join(eojeol[7:14])))
    index = find(texts, apart)
    assert touched(index)["ngram"] == []
    assert index.applies("ngram").tolist() == [True, False]
    index = find(texts, [*apart, *training("x", "y", f"앞말 {', '.join(eojeol[3:17])}! 뒷말")[2:]])
    (match,) = index.matches("ngram")
    assert (match.text, match.document, match.num_documents) == (0, "2", 1)
    assert match.similarity == 2 / 8  # 14 eojeol are two of the text's eight n-grams
    assert match.snippet.startswith("앞말")


def test_letter_ngrams_touch_from_seventy_per_cent_on_all_documents_together() -> None:
    text = "".join(SYLLABLES[:22])  # ten n-grams
    half = training(text[:16], "사이", text[4:19])  # four, and three others
    index = find([text], half)
    (match,) = index.matches("letter_ngram")
    assert match.similarity == 0.7
    assert (match.document, match.num_documents, index.num_documents("letter_ngram")) == ("0", 2, 2)
    assert touched(find([text], half[:2]))["letter_ngram"] == []
    assert touched(find([text], training((text[:18], text[6:18]))))["letter_ngram"] == []  # the same ones twice
    assert touched(find([text], training(text[:12] + "\n" + text[12:])))["letter_ngram"] == [0]
    assert touched(find([text], training((text[:12], text[12:]))))["letter_ngram"] == []


def test_short_texts_are_not_applicable_rather_than_clean() -> None:
    index = EvaluationIndex(
        ["", "👍", "아니", "재미있는", "재미있어요", "가나다라마바사아자차카타파", " ".join("가" * 13)]
    )
    applies = {measure: index.applies(measure).tolist() for measure in MEASURES}
    assert applies["exact"] == [True] * 7
    assert applies["normalised"] == [False] * 2 + [True] * 5
    assert applies["minhash"] == [False] * 4 + [True] * 3
    assert applies["letter_ngram"] == [False] * 5 + [True] * 2
    assert applies["ngram"] == [False] * 6 + [True]


# ---- MinHash ----


def shingles(text: str, size: int = 5) -> set[str]:
    letters = letters_of(text)
    return {letters[k : k + size] for k in range(len(letters) - size + 1)}


def jaccard(a: str, b: str) -> float:
    ours, theirs = shingles(a), shingles(b)
    return len(ours & theirs) / len(ours | theirs)


def near_copies(number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield texts, each with a copy in which zero to six letters are changed."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        text = syllables(rng, int(rng.integers(30, 121)))
        copy = list(text)
        for place in rng.choice(len(text), rng.integers(0, 7), replace=False):
            copy[place] = syllables(rng, 1)
        yield text, "".join(copy)


def test_near_copies_are_found_and_nothing_else_is() -> None:
    pairs = list(near_copies(4000, seed=2))
    index = find([text for text, _ in pairs], training(*(copy for _, copy in pairs)))
    near = {number for number, (text, copy) in enumerate(pairs) if jaccard(text, copy) >= 0.8}
    found = index.matches("minhash")
    assert 1000 < len(near) < 3000
    assert {match.text for match in found} <= near  # precision is 1: the index is counted, not estimated
    # Of the worst pairs 0.02 % are missed: of these, fewer than one is expected, and three would be a wonder.
    assert len(found) >= len(near) - 2
    assert all(match.document == str(match.text) and match.num_documents == 1 for match in found)
    assert [match.similarity for match in found] == pytest.approx([jaccard(*pairs[match.text]) for match in found])


def test_signatures_agree_with_the_probability_that_theory_says(subtests: pytest.Subtests) -> None:
    for bands, rows, expected in [(1, 1, 0.5), (4, 1, 1 - 0.5**4), (1, 4, 0.5**4), (16, 4, 1 - (1 - 0.5**4) ** 16)]:
        with subtests.test(bands=bands, rows=rows, expected=expected):
            rng = np.random.default_rng(3)
            pairs = []
            for _ in range(3000):
                letters = "".join(rng.permutation(SYLLABLES)[:84])
                # 64 letters have 60 shingles; two texts that share 44 letters at one end share 40 of 80: Jaccard 1/2.
                pairs.append((letters[:64], letters[:44] + letters[64:]))
            assert {round(jaccard(*pair), 9) for pair in pairs[:50]} == {0.5}
            config = OverlapConfig(min_jaccard=0.5, bands=bands, rows=rows)
            found = find([text for text, _ in pairs], training(*(copy for _, copy in pairs)), config).matches("minhash")
            deviation = (expected * (1 - expected) / len(pairs)) ** 0.5
            assert abs(len(found) / len(pairs) - expected) < 4 * deviation


def test_similar_sentences_are_found_inside_documents_if_they_are_long() -> None:
    sentence = "한국은행 금융통화위원회는 오늘 기준금리를 현재의 수준에서 유지하기로 만장일치로 결정했다."
    other = sentence.replace("결정했다", "결정")
    assert 0.8 <= jaccard(sentence, other) < 1
    article = f"서울의 날씨는 맑았다. {other} 시장은 조용했다.\n둘째 단락이다. 정말로 좋았어요. 끝."
    index = find([sentence, "정말로 좋았어요!"], training(article))
    assert [(match.text, match.similarity) for match in index.matches("minhash")] == [(0, jaccard(sentence, other))]
    assert "기준금리를" in index.matches("minhash")[0].snippet


# ---- all measures against a plain reference ----

SMALL = OverlapConfig(ngram=3, min_quote=4, shingle=2, min_share=0.6, min_jaccard=0.5, bands=64, rows=1)


def plain_letters(text: str) -> str:
    folded = unicodedata.normalize("NFC", text).casefold()
    return "".join(character for character in folded if character.isalnum())


def plain_grams(units: Sequence[str], size: int) -> set[tuple[str, ...]]:
    return {tuple(units[k : k + size]) for k in range(len(units) - size + 1)}


def eojeol(text: str) -> list[str]:
    return [letters for word in text.split() if (letters := plain_letters(word))]


def similarities(text: str, document: TrainingText, config: OverlapConfig) -> dict[Measure, float]:
    """Return how similar one text is to one document by every measure, n-grams as their share in this document."""
    lines = [line for part in document.parts for line in part.splitlines()]
    passages = [*document.parts, *lines]
    split = ["".join(sentence) for line in lines for sentence in split_by_rules(line)]
    units = [*passages, *(sentence for sentence in split if len(plain_letters(sentence)) >= config.min_quote)]
    letters = plain_letters(text)
    is_quote = len(letters) >= max(config.min_quote, config.ngram)
    result: dict[Measure, float] = dict.fromkeys(MEASURES, 0.0)
    result["exact"] = float(any(passage.strip() == text.strip() for passage in document.parts)) or float(
        any(line.strip() == text.strip() for line in lines if line.strip())
    )
    result["normalised"] = float(
        any(letters == plain_letters(passage) for passage in passages if letters)
        or (is_quote and any(letters in plain_letters(part) for part in document.parts))
    )
    for measure, cut in (("ngram", eojeol), ("letter_ngram", lambda text: list(plain_letters(text)))):
        grams = plain_grams(cut(text), config.ngram)
        theirs = set().union(*(plain_grams(cut(part), config.ngram) for part in document.parts))
        result[measure] = len(grams & theirs) / len(grams) if grams else 0.0
    ours = plain_grams(letters, config.shingle)
    for unit in units:
        theirs = plain_grams(plain_letters(unit), config.shingle)
        if ours and theirs and len(ours & theirs) / len(ours | theirs) >= config.min_jaccard:
            result["minhash"] = max(result["minhash"], len(ours & theirs) / len(ours | theirs))
    return result


def reference(texts: Sequence[str], documents: Sequence[TrainingText]) -> dict[Measure, list[Match]]:
    found: dict[Measure, list[Match]] = {measure: [] for measure in MEASURES}
    for number, text in enumerate(texts):
        each = [similarities(text, document, SMALL) for document in documents]
        for measure in MEASURES:
            values = [value[measure] for value in each]
            similarity = max(values, default=0.0)
            if measure in {"ngram", "letter_ngram"}:
                cut = eojeol if measure == "ngram" else plain_letters
                grams = plain_grams(cut(text), SMALL.ngram)
                parts = [part for document in documents for part in document.parts]
                theirs = set().union(*(plain_grams(cut(part), SMALL.ngram) for part in parts))
                similarity = len(grams & theirs) / len(grams) if grams else 0.0
            if similarity >= (SMALL.min_share if measure == "letter_ngram" else 1e-9):
                closest = values.index(max(values))
                num_documents = sum(value > 0 for value in values)
                found[measure].append(Match(number, similarity, num_documents, documents[closest].id, ""))
    return found


TEXTS = st.lists(st.sampled_from([*"가나다라 A.", "\n", " ", "나다", "👍", "?  "]), max_size=14).map("".join)


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=6, unique=True), st.lists(st.lists(TEXTS, min_size=1, max_size=2), max_size=6))
def test_what_is_found_is_what_a_plain_search_finds(texts: list[str], parts: list[list[str]]) -> None:
    documents = [TrainingText(str(number), tuple(each)) for number, each in enumerate(parts)]
    index = find(texts, documents, SMALL, size=20)
    expected = reference(texts, documents)
    for measure in MEASURES:
        ours, theirs = index.matches(measure), expected[measure]
        assert [(m.text, m.num_documents, m.document) for m in ours] == [
            (m.text, m.num_documents, m.document) for m in theirs
        ], measure
        assert [match.similarity for match in ours] == pytest.approx([match.similarity for match in theirs])


# ---- blocks, memory, hostile texts ----


def mixed(seed: int, number: int) -> tuple[list[str], list[TrainingText]]:
    """Return texts, and documents of which some copy some of them."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(words(rng, int(rng.integers(2, 21)))) for _ in range(40)]
    documents = []
    for _ in range(number):
        copied = texts[rng.integers(len(texts))] if rng.random() < 0.3 else ""
        documents.append(" ".join([*words(rng, 5), copied, *words(rng, int(rng.integers(31)))]))
    return texts, training(*documents, *texts[:10])


def test_the_size_of_blocks_changes_nothing() -> None:
    texts, documents = mixed(4, 200)
    indexes = [find(texts, documents, size=size) for size in (1, 777, 10**9)]
    assert all(len(indexes[0].matches(measure)) > 5 for measure in MEASURES)
    for measure in MEASURES:
        assert indexes[0].matches(measure) == indexes[1].matches(measure) == indexes[2].matches(measure)
        assert len({index.num_documents(measure) for index in indexes}) == 1


def test_a_long_document_is_compared_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, documents = mixed(7, 200)
    joined = training("\n".join(part for document in documents for part in document.parts))
    whole = find(texts, joined)
    assert len(whole.matches("minhash")) > 5
    monkeypatch.setattr(corpora.overlap, "MAX_UNIT_LETTERS", 1000)
    assert touched(find(texts, joined)) == touched(whole)
    assert find(texts, joined).matches("minhash") == whole.matches("minhash")


def test_memory_does_not_grow_with_the_training_text() -> None:
    texts, documents = mixed(5, 100)

    def stream(rounds: int) -> Iterator[TrainingText]:
        for number in range(rounds):
            for document in documents:
                yield TrainingText(f"{number}-{document.id}", document.parts)

    def peak(rounds: int) -> int:
        index = EvaluationIndex(texts)
        tracemalloc.start()
        for block in blocks_of(stream(rounds), 20_000):
            index.scan(block)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(4)  # what is only loaded once
    assert peak(32) < 1.1 * peak(8)


HOSTILE = [
    "",
    "   \n",
    "👍👍👍",
    "👨\u200d👩\u200d👧 가족 영화예요 정말로요",
    unicodedata.normalize("NFD", "한글은 자모로 풀어 써도 한글입니다"),
    "ㅋ" * 5000,
    "Straße STRASSE ﬁnale İstanbul",
    "\ud800 반쪽 글자가 섞인 글입니다",
    "\x00제어\x1f문자\u2028줄",
    "١٢٣٤٥٦٧ ²³ Ⅳ",
]


def test_hostile_texts_are_found_and_shown() -> None:
    index = find(HOSTILE, training(*HOSTILE))
    assert touched(index)["exact"] == list(range(len(HOSTILE)))
    assert touched(index)["normalised"] == touched(index)["minhash"] == list(range(3, len(HOSTILE)))
    for measure in MEASURES:
        for match in index.matches(measure):
            assert match.num_documents == (2 if match.text in {0, 1} else 1)  # blank texts equal each other
            assert len(match.snippet) <= 202
            if match.text > 1:
                assert letters_of(match.snippet)[:5] in letters_of(unicodedata.normalize("NFC", HOSTILE[match.text]))


def test_a_snippet_stands_where_the_text_stands() -> None:
    text = "".join(SYLLABLES[:30])
    around = "Straße 앞의 긴 문장입니다. " * 30
    (match,) = find([text], training(f"{around}{text}, {around}")).matches("normalised")
    assert text in match.snippet
    assert match.snippet.startswith("…")
    assert match.snippet.endswith("…")
    assert len(match.snippet) < 30 + 60


def test_nothing_to_look_for_or_in_is_no_error() -> None:
    for texts in ([], ["", "👍"], ["가"]):
        index = EvaluationIndex(texts)
        index.scan(Block([]))
        index.scan(Block(training("", "가나다", "\n\n")))
        assert len(index) == len(texts)
        assert touched(index)["minhash"] == []
    assert list(blocks_of([])) == []


def test_letters_that_only_hash_alike_are_not_taken_for_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = corpora.overlap.window_hashes
    monkeypatch.setattr(corpora.overlap, "window_hashes", lambda codes, width: plain(codes, width) & 7)
    rng = np.random.default_rng(6)
    texts, documents = ([syllables(rng, 20) for _ in range(100)] for _ in range(2))
    assert touched(find(texts, training(*documents)))["letter_ngram"] == []
    assert touched(find(texts, training(*documents)))["normalised"] == []
