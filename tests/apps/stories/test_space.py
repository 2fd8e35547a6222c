"""The space of titles: lengths, weights, threads, what is kept on the disk, and vectors that are none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from apps.stories.space import CharNgrams, EmbeddingCache, HybridFeatures, HybridSpace, embed_checked
from corpora.foundation.errors import CheckpointError

TEXTS = ("기준금리 동결", "기준 금리 동결", "첫눈 내린 고갯길", "막차 연장 검토")


class Words(Protocol):
    """What the fixture `words` returns."""

    sha256: str
    num_texts: int

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


class Given:
    """An embedder with given vectors."""

    sha256 = "given"

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.vectors[: len(texts)]


def vectors(size: int, dimension: int = 8) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((size, dimension)).astype(np.float32)


def points_of(weight: float, given: NDArray[np.float32] | None = None, **settings: int) -> NDArray[np.float32]:
    given = vectors(len(TEXTS)) if given is None else given
    return HybridFeatures(letter_weight=weight, **settings).fit(TEXTS, given).transform(TEXTS, given)


def test_points_have_length_1_and_half_precision() -> None:
    for weight in [0.0, 0.3, 1.0]:
        points = points_of(weight)
        assert points.dtype == np.float32, weight
        assert np.array_equal(points, points.astype(np.float16)), weight
        assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-3), weight


def test_letters_see_the_same_words_and_meaning_sees_the_vectors() -> None:
    given = vectors(4)
    given[2] = given[3]
    letters, meaning = points_of(1.0, given), points_of(0.0, given)
    assert letters[0] @ letters[1] > 0.3 > abs(letters[2] @ letters[3]) + 0.1
    assert meaning[2] @ meaning[3] == pytest.approx(1, abs=1e-2)
    mixed = points_of(0.25, given)
    assert mixed[0] @ mixed[1] == pytest.approx(
        0.25 * (letters[0] @ letters[1]) + 0.75 * (meaning[0] @ meaning[1]), abs=1e-2
    )


def test_letters_keep_the_cosines_of_tf_idf() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [
        f"{who} {what} {number}번째"
        for who in ("시장", "총리", "은행장")
        for what in ("사과", "발표")
        for number in range(9)
    ]
    exact = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True).fit_transform(texts)
    points = HybridFeatures(letter_dimensions=512).fit(texts, np.zeros((len(texts), 0), np.float32))
    found = points.transform(texts, np.zeros((len(texts), 0), np.float32))
    errors = found @ found.T - (exact @ exact.T).toarray()
    assert np.sqrt((errors**2).mean()) < 0.05


def test_a_common_direction_of_all_vectors_is_taken_out() -> None:
    given = vectors(200) + 50
    texts = [f"{number}" for number in range(200)]
    points = HybridFeatures(letter_weight=0).fit(texts, given).transform(texts, given)
    assert abs(np.mean(points @ points.T)) < 0.02


def test_dimensions_are_cut() -> None:
    assert points_of(0.5, dimensions=3, letter_dimensions=16).shape == (4, 3 + 16)
    assert points_of(0.5, dimensions=99, letter_dimensions=16).shape == (4, 8 + 16)
    assert points_of(0.0, dimensions=3).shape == (4, 3)


def test_without_an_embedder_letters_have_all_the_weight() -> None:
    none = np.zeros((4, 0), np.float32)
    points = HybridFeatures(letter_weight=0.5).fit(TEXTS, none).transform(TEXTS, none)
    assert np.allclose(points, points_of(1.0)[:, -512:], atol=1e-3)


def test_another_seed_projects_otherwise_and_the_same_seed_alike() -> None:
    assert np.array_equal(points_of(1.0, seed=3), points_of(1.0, seed=3))
    assert not np.array_equal(points_of(1.0, seed=3), points_of(1.0, seed=4))


def test_vectors_that_are_not_finite_count_as_none(caplog: pytest.LogCaptureFixture) -> None:
    given = vectors(4)
    given[1, 2], given[3] = np.nan, np.inf
    points = points_of(0.5, given)
    assert np.isfinite(points).all()
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-3)
    assert np.allclose(points[1, 8:], points_of(1.0)[1, 8:], atol=2e-3)
    assert "2 of 4 vectors are not finite" in caplog.text


def test_vectors_without_information_leave_the_letters() -> None:
    for given in [np.full((4, 8), np.nan, np.float32), np.ones((4, 8), np.float32)]:
        assert np.allclose(points_of(0.5, given)[:, 8:], points_of(1.0)[:, 8:], atol=2e-3), given[0]
        assert not points_of(0.0, given).any(), given[0]


def test_nothing_is_placed_nowhere() -> None:
    space = HybridFeatures().fit([], vectors(0))
    assert space.transform([], vectors(0)).shape == (0, 8 + 512)
    assert space.transform(["첫눈"], vectors(1)).shape == (1, 8 + 512)


def test_a_space_comes_back_from_its_arrays() -> None:
    given = vectors(4)
    space = HybridFeatures(seed=5, letter_weight=0.7).fit(TEXTS, given)
    again = HybridSpace.from_arrays(space.arrays())
    assert np.array_equal(space.transform(TEXTS, given), again.transform(TEXTS, given))
    assert (again.letter_weight, again.seed) == (0.7, 5)


def test_a_cache_asks_for_each_text_once(tmp_path: Path, words: Words) -> None:
    first = EmbeddingCache(tmp_path, words)
    assert np.array_equal(first.encode(["가 나", "다", "가 나"]), words.encode(["가 나", "다", "가 나"]))
    words.num_texts = 0
    again = EmbeddingCache(tmp_path, words)
    assert again.encode(["라", "다"]).shape == (2, 32)
    assert words.num_texts == 1
    assert again.encode([]).shape == (0, 32)


def test_a_cache_resumes_after_an_interruption(tmp_path: Path, words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.stories.space.BLOCK", 2)
    texts = ["가", "나", "다", "라", "마"]
    expected = words.encode(texts)

    def interrupt(some: Sequence[str]) -> NDArray[np.float32]:
        if "마" in some:
            raise KeyboardInterrupt
        return np.stack([expected[texts.index(text)] for text in some])

    with monkeypatch.context() as patch:
        patch.setattr(words, "encode", interrupt)
        with pytest.raises(KeyboardInterrupt):
            EmbeddingCache(tmp_path, words).encode(texts)
    words.num_texts = 0
    assert np.array_equal(EmbeddingCache(tmp_path, words).encode(texts), expected)
    assert words.num_texts == 1


def test_models_do_not_share_vectors(tmp_path: Path, words: Words) -> None:
    EmbeddingCache(tmp_path, words).encode(["가"])
    other = Given(np.ones((1, 3), np.float32))
    assert np.array_equal(EmbeddingCache(tmp_path, other).encode(["가"]), np.ones((1, 3)))


def test_a_damaged_file_of_a_cache_is_made_again(
    tmp_path: Path, words: Words, caplog: pytest.LogCaptureFixture
) -> None:
    before = EmbeddingCache(tmp_path, words).encode(["가"])
    (file,) = tmp_path.rglob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-9])
    assert np.array_equal(EmbeddingCache(tmp_path, words).encode(["가"]), before)
    assert "damaged" in caplog.text


def test_an_embedder_that_loses_texts_is_a_one_line_error() -> None:
    for shape in [(1, 8), (4,), (4, 2, 2)]:
        with pytest.raises(CheckpointError, match="for 4 texts"):
            embed_checked(Given(np.zeros(shape, np.float32)), TEXTS)


def test_letters_say_nothing() -> None:
    assert CharNgrams().encode(["가", "나"]).shape == (2, 0)
