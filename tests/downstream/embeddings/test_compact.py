"""Shorter vectors and vectors of 8 bits keep the cosines."""

import json
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import UsageError
from downstream.embed import as_int8, cosines, encode, main, shorten

TEXTS = ["국회가 예산안을 의결했다.", "예산안이 국회를 통과했다.", "주말에 전국에 비가 내린다.", "", "1,000원"]


def test_shortened_vectors_are_the_first_components_at_length_one() -> None:
    vectors = encode(TEXTS)
    short = shorten(vectors, 64)
    assert short.shape == (len(TEXTS), 64)
    assert short.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(cosines(short, vectors[:, :64]).diagonal(), 1, atol=1e-6)
    np.testing.assert_allclose(shorten(vectors, vectors.shape[1]), vectors, atol=1e-6)
    for dimension in (0, -1, vectors.shape[1] + 1):
        with pytest.raises(ValueError, match=f"dimension={dimension}"):
            shorten(vectors, dimension)
    with pytest.raises(ValueError, match="all zero"):
        shorten(np.array([[0, 1]], np.float32), 1)


def test_vectors_of_eight_bits_keep_the_cosines() -> None:
    vectors = encode(TEXTS)
    small = as_int8(vectors)
    assert small.dtype == np.int8
    assert (np.abs(small.astype(int)).max(axis=1) == 127).all()
    np.testing.assert_allclose(cosines(small, small), vectors @ vectors.T, atol=5e-3)
    zeros = np.zeros((2, 4), np.float32)
    assert not as_int8(zeros).any()
    assert not cosines(zeros, zeros).any()
    assert as_int8(np.zeros((0, 4), np.float32)).shape == (0, 4)


def test_the_command_writes_small_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "vectors.npy"
    file.write_text("\n".join(text for text in TEXTS if text), encoding="utf-8")
    assert main(["encode", str(file), "--out", str(out), "--dimension", "32", "--precision", "int8"]) == 0
    assert json.loads(capsys.readouterr().out)["dimension"] == 32
    found = np.load(out, allow_pickle=False)
    assert np.array_equal(found, as_int8(shorten(encode([text for text in TEXTS if text]), 32)))
    with pytest.raises(UsageError, match="--dimension"):
        main(["encode", str(file), "--out", str(out), "--dimension", "1000"])


def test_small_vectors_are_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    def pearson(*options: str) -> float:
        assert main(["evaluate", "klue-sts-sample", *options]) == 0
        return float(json.loads(capsys.readouterr().out)["metrics"]["pearson"])

    whole, small, integers = pearson(), pearson("--dimension", "64"), pearson("--precision", "int8")
    assert whole != small
    assert whole != integers
    assert integers == pytest.approx(whole, abs=0.005)
    assert small == pytest.approx(whole, abs=0.2)
    with pytest.raises(UsageError, match="257 of 256 components"):
        main(["evaluate", "klue-sts-sample", "--dimension", "257"])
