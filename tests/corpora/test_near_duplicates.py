"""Near-duplicates: against brute force, theory, and texts that are shorter than a shingle."""

import doctest
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import sparse

import corpora.near_duplicates
from corpora.near_duplicates import overlapping_pairs, similar_pairs


def texts_with_copies(size: int) -> list[str]:
    """Return distinct texts, of which some are others with a letter or two changed."""
    random = np.random.default_rng(4)
    syllables = [chr(code) for code in range(ord("가"), ord("가") + 2000, 7)]
    made: list[str] = []
    while len(made) < size:
        if made and random.random() < 0.4:
            letters = list(made[random.integers(len(made))])
            for _ in range(random.integers(1, 3)):
                letters[random.integers(len(letters))] = syllables[random.integers(len(syllables))]
            made.append("".join(letters))
        else:
            made.append("".join(syllables[k] for k in random.integers(0, len(syllables), random.integers(4, 60))))
    return sorted(set(made))


def brute_force(texts: Sequence[str], min_jaccard: float) -> set[tuple[int, int]]:
    """Return the pairs of texts by the number of shingles that all pairs share."""
    shingles = [{text[k : k + 5] for k in range(max(1, len(text) - 4))} for text in texts]
    names = {shingle: k for k, shingle in enumerate(set().union(*shingles))}
    rows = np.repeat(np.arange(len(texts)), [len(some) for some in shingles])
    columns = [names[shingle] for some in shingles for shingle in some]
    table = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(names)))
    shared = sparse.triu(table @ table.T, 1).tocoo()
    sizes = np.array([len(some) for some in shingles])
    unions = sizes[shared.row] + sizes[shared.col] - shared.data
    is_near = shared.data >= min_jaccard * unions
    return set(zip(shared.row[is_near].tolist(), shared.col[is_near].tolist(), strict=True))


def test_pairs_are_those_of_brute_force() -> None:
    texts = texts_with_copies(2500)
    expected = brute_force(texts, 0.8)
    found = similar_pairs(texts, width=5, min_jaccard=0.8)
    assert len(expected) > 100
    assert found <= expected
    assert len(found) >= 0.99 * len(expected)


def test_contained_texts_are_found_besides_similar_ones() -> None:
    random = np.random.default_rng(7)
    syllables = [chr(code) for code in range(ord("가"), ord("가") + 2000, 7)]
    bodies = ["".join(syllables[k] for k in random.integers(0, len(syllables), 400)) for _ in range(60)]
    halves = [body[100:300] for body in bodies[:40]]
    scraps = [body[100:150] for body in bodies[40:]]
    found = overlapping_pairs(
        [*bodies, *halves, *scraps], width=5, min_jaccard=0.7, min_containment=0.85, least_size=0.3
    )
    assert found == {(number, 60 + number) for number in range(40)}
    # Many copies with different ends: all their shingles are common.
    many = [bodies[0] + body[:60] for body in bodies]
    found = overlapping_pairs(many, width=5, min_jaccard=0.7, min_containment=0.85, least_size=0.3)
    assert len(found) == len(many) * (len(many) - 1) // 2
    assert overlapping_pairs([], width=5, min_jaccard=0.7, min_containment=0.85, least_size=0.3) == set()


def test_blocks_of_any_size_give_the_same_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = texts_with_copies(60)
    expected = similar_pairs(texts, width=5, min_jaccard=0.6)
    for size in (1, 7, 100):
        monkeypatch.setattr(corpora.near_duplicates, "BLOCK_KEYS", size)
        assert similar_pairs(texts, width=5, min_jaccard=0.6) == expected, size


def test_a_text_shorter_than_a_shingle_is_one_by_itself() -> None:
    assert similar_pairs(["가나", "가나다", "나가나", "가나", "가"], width=5, min_jaccard=0.1) == {(0, 3)}
    assert similar_pairs(["가나다라마", "가나다라"], width=5, min_jaccard=0.1) == set()


def test_few_texts_have_no_pairs_and_any_letter_is_one() -> None:
    assert similar_pairs([], width=5, min_jaccard=0.8) == similar_pairs(["가나다"], width=5, min_jaccard=0.8) == set()
    strange = "🎉\x00\ud800가나다라마바사"
    assert similar_pairs([strange, "막차 연장", strange], width=5, min_jaccard=0.8) == {(0, 2)}


def test_the_example_is_true() -> None:
    assert doctest.testmod(corpora.near_duplicates).failed == 0
