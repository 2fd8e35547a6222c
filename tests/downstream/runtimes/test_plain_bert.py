"""Plain BERTs: the ids of transformers, which folders are of that kind, and a first answer without torch."""

import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.classify import Classifier
from downstream.embed import Embedder
from downstream.encoders.folder import BILSTM_KEY, BUNDLED, TASK_KEY
from downstream.encoders.hub import is_bundled
from downstream.encoders.tokenizers import load_tokenizer
from downstream.fill_mask import MaskFiller
from downstream.runtime import Predictor
from downstream.runtimes.network import read_finetuned
from downstream.runtimes.plain_bert import PlainTokenizer, is_plain_bert
from downstream.runtimes.weights import EncoderWeights, unsupported_reason
from downstream.task import TextExample, get_task

Fails = Callable[..., AbstractContextManager[None]]
Folders = Callable[..., Path]

TEXTS = [
    "시의회가 올해 예산을 확정했다.",
    "",
    "경기는 연장 끝에 2대1로 끝났다. " * 30,
    "café 漢字 \u200b [MASK] x",
    "재미있다😀 👨‍👩‍👧최고 ❤️",
    unicodedata.normalize("NFD", "시의회가 [MASK] 각"),
    "가나다" * 100,
    "뷁쀍",
]


@pytest.fixture(scope="module")
def folder(folders: Folders) -> Path:
    return folders("nsmc-sample")


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


# --- the ids of transformers ------------------------------------------------------------------------------------------

HOSTILE = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from([*TEXTS, "[SEP][CLS]", "가" * 300])


@settings(max_examples=60)
@given(texts=st.lists(HOSTILE, min_size=1, max_size=4), length=st.integers(3, 40) | st.none())
def test_ids_are_those_of_transformers(folder: Path, texts: list[str], length: int | None) -> None:
    ours, theirs = PlainTokenizer.load(folder), load_tokenizer(folder)
    assert ours(texts) == dict(theirs(texts))
    assert ours(texts[0]) == dict(theirs(texts[0]))
    assert ours(texts, add_special_tokens=False) == dict(theirs(texts, add_special_tokens=False))
    cut = {"truncation": True} | ({} if length is None else {"max_length": length})
    assert ours(texts, **cut) == dict(theirs(texts, **cut))
    pairs = texts[::-1]
    cut["truncation"] = "longest_first"
    assert ours(texts, pairs, **cut) == dict(theirs(texts, pairs, **cut))


def test_a_tokenizer_says_of_itself_what_transformers_does(folder: Path) -> None:
    ours, theirs = PlainTokenizer.load(folder), load_tokenizer(folder)
    assert ours.get_vocab() == theirs.get_vocab()
    assert sorted(ours.all_special_ids) == sorted(theirs.all_special_ids)
    for name in ("pad_token_id", "mask_token_id", "mask_token", "model_max_length", "model_input_names"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [ours.convert_ids_to_tokens(k) for k in range(50)] == theirs.convert_ids_to_tokens(list(range(50)))


# --- which folders it takes -------------------------------------------------------------------------------------------


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def normalize_otherwise(folder: Path) -> None:
    normalizer = json.loads((folder / "tokenizer.json").read_text())["normalizer"]
    steps = [step | ({"lowercase": True} if "lowercase" in step else {}) for step in normalizer["normalizers"]]
    edit(folder / "tokenizer.json", normalizer=normalizer | {"normalizers": steps})


def store_in_bfloat16(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    half = {name: value.bfloat16() for name, value in weights.items()}
    save_file(half, folder / "model.safetensors", {"format": "pt"})


def drop_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


WITH_UNUSUAL_WEIGHTS: dict[str, Callable[[Path], object]] = {
    "model_type is 'gpt2'": lambda folder: edit(folder / "config.json", model_type="gpt2"),
    "hidden_act is 'relu'": lambda folder: edit(folder / "config.json", hidden_act="relu"),
    "position_embedding_type is": lambda folder: edit(folder / "config.json", position_embedding_type="relative_key"),
    "is_decoder is True": lambda folder: edit(folder / "config.json", is_decoder=True),
    "not valid JSON": lambda folder: (folder / "config.json").write_text("{"),
    "a list, not an object": lambda folder: (folder / "config.json").write_text("[]"),
    "header": lambda folder: (folder / "model.safetensors").write_bytes(b"damaged"),
    "weights are stored as BF16": store_in_bfloat16,
    "1 encoder weights are missing, e.g. encoder.layer.1.output.dense.bias": drop_a_weight,
}
WITH_UNUSUAL_TOKENIZER: dict[str, Callable[[Path], object]] = {
    "no post-processor": lambda folder: edit(folder / "tokenizer.json", post_processor=None),
    "no file": lambda folder: (folder / "tokenizer.json").unlink(),
    "lower-cased": normalize_otherwise,
    "another kind of model": lambda folder: edit(folder / "config.json", model_type="electra"),
}


def test_what_is_unusual_is_left_to_transformers(folder: Path, tmp_path: Path) -> None:
    changes = WITH_UNUSUAL_WEIGHTS | WITH_UNUSUAL_TOKENIZER
    for number, (name, change) in enumerate(changes.items()):
        copied = tmp_path / str(number)
        copied.mkdir()
        for path in folder.iterdir():
            (copied / path.name).write_bytes(path.read_bytes())
        assert is_plain_bert(copied)
        assert unsupported_reason(copied) == ""
        change(copied)
        assert not is_plain_bert(copied), name
        if name in WITH_UNUSUAL_WEIGHTS:
            assert name in unsupported_reason(copied), name


def test_the_bundled_models_are_plain_and_other_vocabularies_are_not(standins: dict[str, Path]) -> None:
    assert is_bundled("pressbert-mini")
    assert all(is_plain_bert(BUNDLED / name) for name in ("encoder", "classifier", "embedder"))
    assert not any(is_plain_bert(standins[kind]) for kind in ("kobert", "korbert"))


def test_bfloat16_and_a_bilstm_run_elsewhere(copied: Path, fails: Fails) -> None:
    texts = [TextExample("1", TEXTS[0], None, "")]
    assert Classifier.load(copied).predictor.runtime.name == "onnx-fp32"
    before = Predictor.load(copied, "onnx-fp32").outputs(texts)[0]
    store_in_bfloat16(copied)
    after = Predictor.load(copied, "torch").outputs(texts)[0]
    assert np.abs(before[0] - after[0]).max() < 0.1
    assert Classifier.load(copied).predictor.runtime.name == "torch"
    with fails(CheckpointError, copied, "weights are stored as BF16", 'runtime="torch"'):
        Predictor.load(copied, "onnx-fp32")
    edit(copied / "config.json", **{BILSTM_KEY: {"features": "last", "frozen": True}})
    with fails(CheckpointError, copied, "a BiLSTM on top"):
        Predictor.load(copied, "onnx-fp32")


def test_a_vocabulary_that_does_not_fit_is_refused(copied: Path, fails: Fails) -> None:
    edit(copied / "config.json", vocab_size=100)
    with fails(CheckpointError, copied, "subwords and the model 100"):
        PlainTokenizer.load(copied)
    edit(copied / "config.json", vocab_size=10_000)
    with fails(CheckpointError, copied, "do not fit the config"):
        EncoderWeights.from_folder(copied)


def test_tokens_of_span_answers_come_from_transformers(copied: Path) -> None:
    edit(copied / "config.json", **{TASK_KEY: "korquad"})
    assert not isinstance(read_finetuned(copied).tokenizer, PlainTokenizer)


# --- the same answers, ready without torch ----------------------------------------------------------------------------


def test_the_bundled_models_answer_as_transformers_does() -> None:
    texts = [example.text for example in get_task("nsmc-sample").read_split("test", SAMPLE_ROOT).examples]
    ours, theirs = (Classifier.load(runtime=name).probabilities(texts) for name in (None, "torch"))
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.ptp(ours[:, 0]) > 0.5
    ours, theirs = (Embedder.load(device=device).encode(texts) for device in (None, "cpu"))
    assert np.abs(ours - theirs).max() < 1e-5
    fillers = MaskFiller.load(), MaskFiller._load_with_transformers(BUNDLED / "encoder")
    for text in texts[:30]:
        blanked = f"{text} [MASK]가"
        [right], [got] = (filler.fill(blanked) for filler in fillers)
        assert [c.text for c in got.candidates] == [c.text for c in right.candidates], text
        probabilities = np.array([[c.probability for c in blank.candidates] for blank in (right, got)])
        assert np.ptp(probabilities, axis=0).max() < 1e-5, text


ONE_LINERS = {
    "classifier": "from downstream.classify import Classifier; Classifier.load().probabilities(['연기가 좋았다'])",
    "encoder": "from downstream.fill_mask import MaskFiller; MaskFiller.load().fill('정말 [MASK] 봤어요')",
    "embedder": "from downstream.embed import encode; encode(['새 다리가 열렸다', '다리가 개통됐다'])",
}


def test_one_question_is_answered_without_torch() -> None:
    for name, one_liner in ONE_LINERS.items():
        code = f"import sys; {one_liner}; print({{'torch', 'transformers'}} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "set()\n", name
