"""Words are re-segmented: the text stays, longest matches are skipped at the given rate, and no text gets too long."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizer

from corpora.foundation.errors import UsageError
from downstream.encoders.hub import bundled
from downstream.encoders.tokenizers import load_tokenizer
from downstream.finetune import finetune
from downstream.finetuning.subword_dropout import SubwordDropout

Fails = Callable[..., AbstractContextManager[None]]

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "영",
    "영화",
    "영화관",
    "##화",
    "##관",
    "##화관",
    "좋",
    "##았다",
]
"""Without `##았` and `##다`: the longest piece has the last word there."""


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False)


def pieces(tokenizer: Any, features: dict[str, Any]) -> str:
    return " ".join(tokenizer.convert_ids_to_tokens(features["input_ids"]))


def test_each_way_of_cutting_comes_as_often_as_it_should(tokenizer: Any) -> None:
    augment = SubwordDropout(tokenizer, rate=0.3, max_length=128)
    encoded = dict(tokenizer("영화관"))
    generator = np.random.default_rng(0)
    found = [pieces(tokenizer, augment(encoded, generator)) for _ in range(20_000)]
    for cut, share in {
        "영화관": 0.7,
        "영화 ##관": 0.3 * 0.7,
        "영 ##화관": 0.3 * 0.3 * 0.7,
        "영 ##화 ##관": 0.3 * 0.3 * 0.3,
    }.items():
        assert found.count(f"[CLS] {cut} [SEP]") / len(found) == pytest.approx(share, abs=0.01)
    assert pieces(tokenizer, encoded) == "[CLS] 영화관 [SEP]"


def test_unknown_words_and_pieces_without_shorter_ones_stay(tokenizer: Any) -> None:
    augment = SubwordDropout(tokenizer, rate=0.99, max_length=128)
    encoded = dict(tokenizer("좋았다 없다", "영화"))
    new = augment(encoded, np.random.default_rng(0))
    assert pieces(tokenizer, new) == "[CLS] 좋 ##았다 [UNK] [SEP] 영 ##화 [SEP]"
    assert new["token_type_ids"] == [0] * 5 + [1] * 3
    assert new["attention_mask"] == [1] * 8


def test_a_text_that_grows_too_long_keeps_its_end(tokenizer: Any) -> None:
    augment = SubwordDropout(tokenizer, rate=0.99, max_length=6)
    new = augment(dict(tokenizer("영화관 영화관 영화관")), np.random.default_rng(0))
    assert pieces(tokenizer, new) == "[CLS] 영 ##화 ##관 영 [SEP]"
    assert len(new["attention_mask"]) == 6


def test_other_entries_are_left_alone(tokenizer: Any) -> None:
    augment = SubwordDropout(tokenizer, rate=0.99, max_length=128)
    encoded = dict(tokenizer("영화")) | {"labels": [0.25, 0.75, 0.0]}
    assert augment(encoded, np.random.default_rng(0))["labels"] == [0.25, 0.75, 0.0]


@given(st.text(alphabet="가나다영화관 좋았다!ㅋㅠab1", max_size=60), st.integers(0, 1000))
@pytest.mark.slow
def test_the_text_stays(text: str, seed: int) -> None:
    tokenizer = load_tokenizer(bundled("encoder"))
    augment = SubwordDropout(tokenizer, rate=0.5, max_length=512)
    encoded = dict(tokenizer(text))
    new = augment(encoded, np.random.default_rng(seed))
    assert tokenizer.decode(new["input_ids"]) == tokenizer.decode(encoded["input_ids"])


def test_unsupported_tokenizers_and_tasks_are_refused(tmp_path: Path, fails: Fails) -> None:
    encoder = bundled("encoder")
    with fails(UsageError, "finetune subword_dropout", "KLUE-MRC"):
        finetune("klue-mrc-sample", encoder, out=tmp_path, data=None, overrides={"subword_dropout": 0.1})
