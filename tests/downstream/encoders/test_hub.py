"""The compared encoders: their tokenizers piece for piece, what a damaged folder says, and conversion of pickles."""

import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertModel
from transformers.convert_slow_tokenizer import convert_slow_tokenizer

from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from downstream.encoders.__main__ import main
from downstream.encoders.folder import KORBERT_VOCAB
from downstream.encoders.hub import (
    ENCODERS,
    EncoderUnavailableError,
    resolve,
)
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import convert, load_model
from downstream.task import get_task
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS

Fails = Callable[..., AbstractContextManager[None]]
Copy = Callable[..., Path]

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "metric_vectors.json").read_text(encoding="utf-8"))
KINDS = ("kpfbert", "klue-bert", "korbert", "kobert", "mbert")
SPECIAL_IDS = {  # [PAD], [UNK], [CLS], [SEP], [MASK]
    "kpfbert": (0, 1, 2, 3, 4),
    "klue-bert": (0, 1, 2, 3, 4),
    "korbert": (0, 1, 2, 3, 4),
    "kobert": (1, 0, 2, 3, 4),
    "mbert": (0, 100, 101, 102, 103),
}
ODD_TEXTS = ["", " ", "  두  칸 ", "한\t글", "뷁뷁 뷁", "😀 이모지", "가나_다 _ a_b", "大學 (市議會)", "가" * 120]


@pytest.fixture
def copy(tmp_path: Path, standins: dict[str, Path]) -> Copy:
    """Return a function that copies a stand-in and replaces files in it: bytes, text, JSON, or None to remove one."""

    def copy_folder(kind: str = "klue-bert", files: dict[str, Any] | None = None) -> Path:
        folder = tmp_path / f"copy-{len(list(tmp_path.glob('copy-*')))}" / kind
        shutil.copytree(standins[kind], folder)
        for name, content in (files or {}).items():
            if content is None:
                (folder / name).unlink()
            elif isinstance(content, bytes):
                (folder / name).write_bytes(content)
            else:
                text = content if isinstance(content, str) else json.dumps(content)
                (folder / name).write_text(text, encoding="utf-8")
        return folder

    return copy_folder


def load_classifier(folder: Path) -> Any:
    return load_model(folder, load_tokenizer(folder), "AutoModelForSequenceClassification", {"num_labels": 2})


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config


# --- tokenizers -----------------------------------------------------------------------------------------------------


@pytest.mark.real_data
def test_kpfbert_splits_as_published(real_data: Path, subtests: pytest.Subtests) -> None:
    tokenizer = load_tokenizer(real_data / "kpfbert")
    for vector in VECTORS["tokenization_kpfbert"]:
        with subtests.test(text=vector["text"]):
            encoded = tokenizer(vector["text"], vector.get("pair"))
            assert encoded["input_ids"] == vector["ids"]
            assert encoded["token_type_ids"] == vector["type_ids"]
            assert tokenizer.convert_ids_to_tokens(encoded["input_ids"]) == vector["tokens"]


@pytest.mark.real_data
def test_kpfbert_is_cased(real_data: Path) -> None:
    tokenizer = load_tokenizer(real_data / "kpfbert")
    assert "KBS" in tokenizer.tokenize("KBS 뉴스")
    assert tokenizer.tokenize("KBS") != tokenizer.tokenize("kbs")
    assert len(tokenizer) == ENCODERS["kpfbert"].vocab_size


def test_special_tokens_have_the_ids_of_the_model(standins: dict[str, Path], subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            tokenizer = load_tokenizer(standins[kind])
            pad, unk, cls, sep, mask = SPECIAL_IDS[kind]
            assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (pad, unk)
            assert (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id) == (cls, sep, mask)
            assert tokenizer("")["input_ids"] == [cls, sep]
            assert len(tokenizer) == config_of(standins[kind])["vocab_size"]


def test_segments_of_pairs_differ_and_padding_is_on_the_right(
    standins: dict[str, Path], subtests: pytest.Subtests
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            tokenizer = load_tokenizer(standins[kind])
            pad, _, cls, sep, _ = SPECIAL_IDS[kind]
            one, two = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("시의회가 열렸다", "예산"))
            assert one
            assert two
            batch = tokenizer(["시의회가 열렸다", "예산"], ["예산", "예산"], padding=True)
            short = [cls, *two, sep, *two, sep]
            filling = len(one) - len(two)
            assert batch["input_ids"] == [[cls, *one, sep, *two, sep], short + [pad] * filling]
            types = [[0] * (len(text) + 2) + [1] * (len(two) + 1) for text in (one, two)]
            assert batch["token_type_ids"][0] == types[0]
            assert batch["token_type_ids"][1][: len(short)] == types[1]
            assert batch["attention_mask"] == [[1] * (len(one) + len(two) + 3), [1] * len(short) + [0] * filling]


def test_case_and_hangul_are_kept(standins: dict[str, Path], news_lines: list[str], subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            tokenizer = load_tokenizer(standins[kind])
            for line in news_lines[:100]:
                ids = tokenizer(line, add_special_tokens=False)["input_ids"]
                assert tokenizer.unk_token_id not in ids
                assert not re.search("[\u1100-\u11ff]", "".join(tokenizer.convert_ids_to_tokens(ids)))
            assert tokenizer.tokenize("KTX") != tokenizer.tokenize("ktx")


def test_offsets_slice_the_text_in_order(
    standins: dict[str, Path], news_lines: list[str], subtests: pytest.Subtests
) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            tokenizer = load_tokenizer(standins[kind])
            for line in news_lines[:100]:
                encoded = tokenizer(line, add_special_tokens=False, return_offsets_mapping=True)
                covered = [k for first, last in encoded["offset_mapping"] for k in range(first, last)]
                assert covered == sorted(covered)
                assert {k for k, character in enumerate(line) if not character.isspace()} <= set(covered)
                for id_, (first, last) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
                    piece = tokenizer.convert_ids_to_tokens(id_)
                    # KoBERT's subwords are NFKC of the text; a lone mark points at the character beside it.
                    if piece != "_" and kind != "kobert":
                        assert line[first:last] == piece.removeprefix("##").removesuffix("_")


@pytest.mark.slow
def test_a_saved_tokenizer_gives_the_same_ids(
    standins: dict[str, Path], news_lines: list[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, kind in enumerate(KINDS):
        with subtests.test(kind=kind):
            folder = tmp_path / str(number)
            folder.mkdir()
            original = load_tokenizer(standins[kind])
            original.save_pretrained(folder)
            shutil.copy(standins[kind] / "config.json", folder)
            again = load_tokenizer(folder)
            texts = [*news_lines[:200], *ODD_TEXTS]
            for settings in ({}, {"padding": True, "truncation": True, "max_length": 48}):
                assert dict(again(texts, texts[::-1], **settings)) == dict(original(texts, texts[::-1], **settings))
            offsets = [t(texts, return_offsets_mapping=True)["offset_mapping"] for t in (original, again)]
            assert offsets[0] == offsets[1]
            assert again.model_max_length == original.model_max_length == 512
            assert len(again) == len(original)


def test_plain_transformers_reads_a_saved_tokenizer_alike(
    standins: dict[str, Path], news_lines: list[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, kind in enumerate(KINDS):
        with subtests.test(kind=kind):
            folder = tmp_path / str(number)
            folder.mkdir()
            original = load_tokenizer(standins[kind])
            original.save_pretrained(folder)
            plain = AutoTokenizer.from_pretrained(folder)
            texts = [*news_lines[:50], *ODD_TEXTS]
            settings = {"padding": True, "truncation": True, "max_length": 48}
            assert dict(plain(texts, texts[::-1], **settings)) == dict(original(texts, texts[::-1], **settings))


def test_kobert_splits_as_sentencepiece(
    write_sentencepiece: Callable[[Path, str], Path], news_lines: list[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, model_type in enumerate(
        (
            "unigram",
            "bpe",
        )
    ):
        with subtests.test(model_type=model_type):
            folder = tmp_path / str(number)
            folder.mkdir()
            reference = sentencepiece.SentencePieceProcessor(model_file=str(write_sentencepiece(folder, model_type)))
            (folder / "config.json").write_text('{"model_type": "bert"}')
            tokenizer = load_tokenizer(folder)
            for text in [*news_lines, *ODD_TEXTS, "\uff26\uff35\uff2c\uff2c\u3000\uff11\uff12 ①½"]:
                encoded = tokenizer(text)
                assert encoded["input_ids"] == [2, *reference.encode(text), 3]
                assert encoded["token_type_ids"] == [0] * len(encoded["input_ids"])
            assert tokenizer.pad_token_id == 1


def test_kobert_loads_whatever_transformers_has_loaded_before(
    standins: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A module and a function in it share this name. The package holds the function once models were loaded after
    # tokenizers, e.g. by `load_tokenizer(kpfbert)`, `load_model(kpfbert)`, `load_tokenizer(kobert)`.
    monkeypatch.setattr(sys.modules["transformers"], "convert_slow_tokenizer", convert_slow_tokenizer)
    assert load_tokenizer(standins["kobert"])("예산")["input_ids"][0] == 2


def read_korbert_vocab(folder: Path) -> dict[str, int]:
    rows = (folder / KORBERT_VOCAB).read_text(encoding="utf-8").splitlines()[2:]
    return {row.split("\t")[0]: number for number, row in enumerate(rows)}


def korbert_reference(text: str, vocab: dict[str, int]) -> list[int]:
    """Take from every eojeol, marked `_` at its end, the longest known piece; one [UNK] for a run of unknown ones.

    An eojeol is cut behind every 100 characters.
    """
    known = {character for piece in vocab if piece[0] != "[" for character in piece}
    ids = []
    for eojeol in (f"{eojeol}_" for eojeol in text.split()):
        for first in range(0, len(eojeol), 100):
            rest = eojeol[first : first + 100]
            while rest:
                end = next((end for end in range(len(rest), 0, -1) if rest[:end] in vocab), 0)
                if end:
                    ids.append(vocab[rest[:end]])
                else:
                    ids.append(vocab["[UNK]"])
                    end = next((k for k, character in enumerate(rest) if character in known), len(rest))
                    end += rest[end:] == "_"
                rest = rest[end:]
    return [vocab["[CLS]"], *ids, vocab["[SEP]"]]


def test_korbert_takes_the_longest_piece_of_the_eojeol(standins: dict[str, Path], news_lines: list[str]) -> None:
    tokenizer, vocab = load_tokenizer(standins["korbert"]), read_korbert_vocab(standins["korbert"])
    assert tokenizer.get_vocab() == vocab
    for text in [*news_lines, *ODD_TEXTS, "가" * 98, "가" * 99, "가" * 250, "가\r\n나", "가\u00a0나\u3000다"]:
        assert tokenizer(text)["input_ids"] == korbert_reference(text, vocab)


def test_korbert_keeps_its_end_mark_out_of_the_text(standins: dict[str, Path]) -> None:
    text = "시의회가 예산을 확정했다."
    encoded = load_tokenizer(standins["korbert"])(text, return_offsets_mapping=True, add_special_tokens=False)
    assert [text[first:last][-1] for first, last in encoded["offset_mapping"]][-1] == "."
    assert "".join(text[first:last] for first, last in encoded["offset_mapping"]) == text.replace(" ", "")
    pieces = encoded.tokens()
    assert sum(piece.endswith("_") for piece in pieces) == 3
    assert not any("##" in piece for piece in pieces)


def test_a_korbert_piece_listed_twice_does_not_shift_the_others(copy: Copy) -> None:
    vocab = "n_iters=1\nmax_length=2\n" + "".join(
        f"{piece}\t1\n"
        for piece in (*SPECIAL_TOKENS, "가", "가", "나", "_", *"이라의한기자런일을다시보고그사실알리는글")
    )
    tokenizer = load_tokenizer(copy("korbert", {KORBERT_VOCAB: vocab}))
    assert tokenizer("나")["input_ids"] == [2, 7, 8, 3]  # the line is the row of the embeddings


JAMO = [
    chr(point)
    for first, last in ((0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2))
    for point in range(first, last + 1)
]
DECOMPOSED = "".join(
    f"{piece}\n" for piece in [*SPECIAL_TOKENS, *"abkstx.", *JAMO, *(f"##{p}" for p in [*"abkstx", *JAMO])]
)
"""A vocabulary of decomposed Hangul without capital letters, as those of KR-BERT and multilingual-uncased."""


def test_the_folder_decides_on_case(copy: Copy, subtests: pytest.Subtests) -> None:
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    uncased = normalizer | {"lowercase": True, "strip_accents": None}
    cases: list[tuple[str, dict[str, Any], dict[str, Any] | None, bool]] = [
        ("its config", {"do_lower_case": True}, None, True),
        ("its config before its normalizer", {"do_lower_case": False}, uncased, False),
        ("its normalizer", {}, uncased, True),
        ("nothing", {}, None, False),
    ]
    for name, stated, inner, is_uncased in cases:
        with subtests.test(name):
            folder = copy(files={"vocab.txt": DECOMPOSED, "tokenizer_config.json": stated})
            if inner is not None:
                vocab = {piece: k for k, piece in enumerate(DECOMPOSED.splitlines())}
                backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
                backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
                content = json.loads(backend.to_str()) | {"normalizer": inner}
                (folder / "tokenizer.json").write_text(json.dumps(content))
            for text in ("시장은 ktx", unicodedata.normalize("NFD", "시장은 ktx")):
                assert "[UNK]" not in load_tokenizer(folder).tokenize(text)
            assert ("[UNK]" not in load_tokenizer(folder).tokenize("KTX")) == is_uncased


def test_a_tokenizer_without_hangul_is_refused_with_the_reason(
    copy: Copy, fails: Fails, subtests: pytest.Subtests
) -> None:
    english = "".join(f"{piece}\n" for piece in [*SPECIAL_TOKENS, "news", "##paper", *"abc", "##a"])
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "of English": ("klue-bert", {"vocab.txt": english}),
        "cased and said to be uncased": ("klue-bert", {"tokenizer_config.json": {"do_lower_case": True}}),
        "of KorBERT's kind": ("korbert", {KORBERT_VOCAB: "".join(f"{piece}\t1\n" for piece in [*SPECIAL_TOKENS, "a"])}),
    }
    for name, (kind, files) in cases.items():
        with subtests.test(name):
            folder = copy(kind, files)
            with fails(CheckpointError, folder, "[UNK] of", "line of Hangul", "do_lower_case"):
                load_tokenizer(folder)


def test_a_byte_order_mark_in_a_vocabulary_is_no_character(copy: Copy) -> None:
    folder = copy()
    before = load_tokenizer(folder).get_vocab()
    path = folder / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_tokenizer(folder).get_vocab() == before


def test_models_without_segments_get_no_token_type_ids(copy: Copy, subtests: pytest.Subtests) -> None:
    for model_type in (
        "roberta",
        "xlm-roberta",
        "distilbert",
    ):
        with subtests.test(model_type=model_type):
            folder = copy(
                files={"config.json": {"model_type": model_type, "max_position_embeddings": 514, "pad_token_id": 1}}
            )
            tokenizer = load_tokenizer(folder)
            assert set(tokenizer("예산", "시의회", padding="max_length", max_length=16)) == {
                "input_ids",
                "attention_mask",
            }
            # RoBERTa's positions begin behind the padding id.
            assert tokenizer.model_max_length == (514 if model_type == "distilbert" else 512)


# --- models ---------------------------------------------------------------------------------------------------------


def test_a_model_computes_with_its_own_padding(standins: dict[str, Path], subtests: pytest.Subtests) -> None:
    for kind in KINDS:
        with subtests.test(kind=kind):
            tokenizer = load_tokenizer(standins[kind])
            model = load_model(
                standins[kind], tokenizer, "AutoModelForSequenceClassification", {"num_labels": 2}
            ).eval()
            assert model.config.pad_token_id == tokenizer.pad_token_id == SPECIAL_IDS[kind][0]
            stored = load_file(standins[kind] / "model.safetensors")
            name = next(key for key in stored if key.endswith("word_embeddings.weight"))
            assert torch.equal(model.base_model.embeddings.word_embeddings.weight, stored[name])
            with torch.inference_mode():
                alone = model(**tokenizer(["예산"], return_tensors="pt")).logits
                padded = model(
                    **tokenizer(["예산", "시의회가 예산을 확정했다"], padding=True, return_tensors="pt")
                ).logits[:1]
            assert torch.allclose(alone, padded, atol=1e-6)


def test_weights_are_single_precision_whatever_is_stored(copy: Copy, subtests: pytest.Subtests) -> None:
    for dtype in (
        torch.float16,
        torch.bfloat16,
    ):
        with subtests.test(dtype=dtype):
            folder = copy()
            weights = {key: value.to(dtype) for key, value in load_file(folder / "model.safetensors").items()}
            save_file(weights, folder / "model.safetensors", {"format": "pt"})
            config = config_of(folder) | {"dtype": str(dtype).removeprefix("torch.")}
            (folder / "config.json").write_text(json.dumps(config))
            model = load_classifier(folder)
            assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
            assert torch.equal(
                model.bert.embeddings.word_embeddings.weight.to(dtype), weights[next(_embeddings(weights))]
            )


def _embeddings(names: Iterable[str]) -> Iterable[str]:
    return (name for name in names if name.endswith("word_embeddings.weight"))


def test_a_saved_model_names_its_outputs(standins: dict[str, Path], tmp_path: Path) -> None:
    family = get_task("klue-nli").family
    tokenizer = load_tokenizer(standins["kpfbert"])
    load_model(standins["kpfbert"], tokenizer, family.auto_class, family.head_config()).save_pretrained(tmp_path)
    config = config_of(tmp_path)
    assert config["id2label"] == {"0": "entailment", "1": "contradiction", "2": "neutral"}
    assert config["label2id"] == {"entailment": 0, "contradiction": 1, "neutral": 2}
    assert config["problem_type"] == "single_label_classification"


# --- unavailable encoders -------------------------------------------------------------------------------------------


def test_an_encoder_is_a_folder_first(standins: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    assert resolve(str(standins["mbert"])) == standins["mbert"]
    monkeypatch.chdir(tmp_path)
    Path("kpfbert").mkdir()
    assert resolve("kpfbert") == Path("kpfbert")


def test_an_unknown_encoder_names_the_nearest(fails: Fails, subtests: pytest.Subtests) -> None:
    for name, meant in (
        ("kpfbrt", "kpfbert"),
        ("KLUE_bert", "klue-bert"),
        ("m-bert", "mbert"),
    ):
        with subtests.test(name=name, meant=meant), fails(CheckpointError, name, f"did you mean '{meant}'?"):
            resolve(name)


def test_a_missing_folder_is_one_line(fails: Fails, subtests: pytest.Subtests) -> None:
    for name in (
        "runs/no/such/folder",
        "./missing",
        "/missing",
        "runs/a--b",
        "my runs/nsmc",
        "뉴스/a",
    ):
        with subtests.test(name=name), fails(CheckpointError, name):
            resolve(name)


def test_korbert_is_available_by_licence_only(fails: Fails) -> None:
    with fails(EncoderUnavailableError, "korbert", "ETRI licence", "korbert=FOLDER"):
        resolve("korbert")


def test_a_hub_model_needs_the_network(
    fails: Fails, monkeypatch: Any, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name in (
        "nobody/no-such-encoder",
        "kpfbert",
    ):
        with subtests.test(name=name):
            monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
            monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
            with fails(EncoderUnavailableError, name, ENCODERS[name].hub_id if name in ENCODERS else name, "=FOLDER"):
                resolve(name)


# --- damaged folders ------------------------------------------------------------------------------------------------


def test_missing_weights_are_named(copy: Copy, fails: Fails) -> None:
    folder = copy(files={"model.safetensors": None})
    with fails(CheckpointError, folder, "no model.safetensors"):
        load_classifier(folder)


def test_pickled_weights_are_not_read_but_converted(copy: Copy, fails: Fails) -> None:
    folder = copy(files={"model.safetensors": None, "pytorch_model.bin": b"anything"})
    with fails(CheckpointError, folder, "pytorch_model.bin", f"python -m downstream.encoders '{folder}' --out"):
        load_classifier(folder)


def test_truncated_weights_are_an_error(copy: Copy, fails: Fails, subtests: pytest.Subtests) -> None:
    for kept in (
        0,
        4,
        200,
        -1,
    ):
        with subtests.test(kept=kept):
            folder = copy()
            path = folder / "model.safetensors"
            path.write_bytes(path.read_bytes()[:kept])
            with fails(CheckpointError, folder, "cannot be read"):
                load_classifier(folder)


def test_a_vocabulary_larger_than_the_model_is_an_error(copy: Copy, fails: Fails) -> None:
    folder = copy()
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("하나더\n")
    size = config_of(folder)["vocab_size"]
    with fails(CheckpointError, folder, f"{size + 1:,} subwords", f"{size:,}"):
        load_classifier(folder)


def test_weights_of_another_shape_are_an_error(copy: Copy, fails: Fails, subtests: pytest.Subtests) -> None:
    for change in (
        {"hidden_size": 64},
        {"vocab_size": 2005},
        {"intermediate_size": 65},
    ):
        with subtests.test(change=change):
            folder = copy()
            (folder / "config.json").write_text(json.dumps(config_of(folder) | change))
            with fails(CheckpointError, folder, "weights"):
                load_classifier(folder)


def test_weights_that_leave_layers_at_random_are_an_error(copy: Copy, fails: Fails) -> None:
    folder = copy()
    (folder / "config.json").write_text(json.dumps(config_of(folder) | {"num_hidden_layers": 3}))
    with fails(CheckpointError, folder):
        load_classifier(folder)


def test_weights_of_another_model_are_an_error(copy: Copy, fails: Fails) -> None:
    folder = copy()
    save_file({"something.else": torch.zeros(3)}, folder / "model.safetensors", {"format": "pt"})
    with fails(CheckpointError, folder):
        load_classifier(folder)


def test_a_broken_config_is_an_error(copy: Copy, fails: Fails, subtests: pytest.Subtests) -> None:
    for content in (
        b"{",
        b"",
        b"\xb0\xa1",
        b"[]",
        b"{}",
        b'{"model_type": "nope"}',
    ):
        with subtests.test(content=content):
            folder = copy(files={"config.json": content})
            with fails(CheckpointError, folder):
                load_classifier(folder)


def test_a_config_of_an_impossible_model_is_an_error(copy: Copy, fails: Fails) -> None:
    folder = copy()
    (folder / "config.json").write_text(json.dumps(config_of(folder) | {"num_attention_heads": 5}))
    with fails(CheckpointError, folder):
        load_classifier(folder)


def test_a_damaged_vocabulary_is_an_error(copy: Copy, fails: Fails, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("klue-bert", {"vocab.txt": None}),
        ("klue-bert", {"vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xb0\xa1\n"}),
        ("klue-bert", {"vocab.txt": ""}),
        ("klue-bert", {"vocab.txt": "[PAD]\n가\n나\n"}),
        ("klue-bert", {"vocab.txt": None, "tokenizer.json": "{"}),
        ("klue-bert", {"tokenizer_config.json": "{"}),
        ("kobert", {"spiece.model": b"garbage"}),
        ("kobert", {"spiece.model": b""}),
        ("kobert", {"tokenizer.json": "{}", "tokenizer_config.json": "{"}),
        ("korbert", {KORBERT_VOCAB: b"\xb0\xa1\t3\n"}),
        ("korbert", {KORBERT_VOCAB: "n_iters=1\n가\t3\n"}),
        ("korbert", {KORBERT_VOCAB: ""}),
    ]
    for kind, files in cases:
        with subtests.test(kind=kind, files=files):
            folder = copy(kind, files)
            with fails(CheckpointError, folder):
                load_tokenizer(folder)


def test_a_folder_without_a_model_is_an_error(tmp_path: Path, fails: Fails) -> None:
    with fails(CheckpointError, tmp_path, "no config.json"):
        load_tokenizer(tmp_path)


# --- conversion -----------------------------------------------------------------------------------------------------


class Touch:
    """A pickle of this creates a file when a careless reader loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture
def masked_lm(standins: dict[str, Path]) -> Any:
    """Return the whole masked language model of the kpfBERT stand-in, head included."""
    return BertForMaskedLM.from_pretrained(standins["kpfbert"]).eval()


def old_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Name LayerNorm's tensors as before 2019."""
    return {
        re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", key)): value
        for key, value in state.items()
    }


def pickled(copy: Copy, state: object, kind: str = "kpfbert") -> Path:
    folder = copy(kind, {"model.safetensors": None})
    torch.save(state, folder / "pytorch_model.bin")
    return folder


def masked_logits(model: Any, folder: Path) -> torch.Tensor:
    batch = load_tokenizer(folder)(["시의회가 [MASK] 확정했다.", "예산"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits: torch.Tensor = model(**batch).logits
    return logits


def test_pickled_weights_become_a_plain_folder(
    copy: Copy, masked_lm: Any, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, rename in enumerate(
        (
            old_names,
            dict,
        )
    ):
        with subtests.test(number=number):
            state = rename(masked_lm.state_dict())
            assert any(key.endswith("gamma") for key in state) == (rename is old_names)
            folder, out = pickled(copy, state), tmp_path / f"plain-{number}"
            convert(str(folder), out)
            assert {path.name for path in out.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
            assert not list(out.glob("*.bin"))
            plain = load_model(out, load_tokenizer(out), "AutoModelForMaskedLM", {}).eval()
            assert torch.equal(masked_logits(plain, out), masked_logits(masked_lm, folder))
            assert (
                load_tokenizer(out)("시의회가 예산을")["input_ids"]
                == load_tokenizer(folder)("시의회가 예산을")["input_ids"]
            )


def test_a_bare_encoder_is_converted_too(copy: Copy, standins: dict[str, Path], tmp_path: Path) -> None:
    # skt/kobert-base-v1 and monologg/kobert were saved as BertModel, whose tensors have no "bert." before their names.
    bare = BertModel.from_pretrained(standins["kobert"]).eval()
    folder, out = pickled(copy, bare.state_dict(), "kobert"), tmp_path / "plain"
    convert(str(folder), out)
    plain = load_model(out, load_tokenizer(out), "AutoModel", {}).eval()
    batch = load_tokenizer(folder)(["시의회가 예산을"], return_tensors="pt")
    with torch.inference_mode():
        assert torch.equal(plain(**batch).last_hidden_state, bare(**batch).last_hidden_state)


def test_korbert_as_handed_out_is_converted(copy: Copy, tmp_path: Path) -> None:
    folder = copy("korbert")
    config = config_of(folder)
    torch.manual_seed(1)
    model = BertForMaskedLM(BertConfig(**config)).eval()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    sizes = {key: value for key, value in config.items() if key.endswith(("_size", "_layers", "_heads", "_embeddings"))}
    (folder / "bert_config.json").write_text(json.dumps(sizes))
    convert(str(folder), tmp_path / "plain")
    plain = load_model(tmp_path / "plain", load_tokenizer(tmp_path / "plain"), "AutoModelForMaskedLM", {}).eval()
    assert torch.equal(masked_logits(plain, tmp_path / "plain"), masked_logits(model, folder))


def test_a_folder_with_safetensors_is_copied(standins: dict[str, Path], masked_lm: Any, tmp_path: Path) -> None:
    convert(str(standins["kpfbert"]), tmp_path / "plain")
    plain = load_model(tmp_path / "plain", load_tokenizer(tmp_path / "plain"), "AutoModelForMaskedLM", {}).eval()
    assert torch.equal(masked_logits(plain, tmp_path / "plain"), masked_logits(masked_lm, standins["kpfbert"]))


def test_a_pickle_that_acts_is_refused(copy: Copy, masked_lm: Any, tmp_path: Path, fails: Fails) -> None:
    trap = tmp_path / "trapped"
    folder = pickled(copy, masked_lm.state_dict() | {"trap": Touch(trap)})
    with fails(CheckpointError, folder / "pytorch_model.bin", "cannot be read as weights"):
        convert(str(folder), tmp_path / "plain")
    assert not trap.exists()
    assert not (tmp_path / "plain").exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert trap.exists()  # the trap is one


def test_a_refusal_does_not_advise_to_trust_the_pickle(copy: Copy, tmp_path: Path) -> None:
    folder = pickled(copy, {"trap": Touch(tmp_path / "trapped")})
    with pytest.raises(CheckpointError) as caught:
        convert(str(folder), tmp_path / "plain")
    assert "weights_only" not in str(caught.value)


def test_a_pickle_of_something_else_is_refused(
    copy: Copy, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    for number, state in enumerate(
        (
            {},
            [1, 2],
            {"a": 1},
            {"bert.embeddings.word_embeddings.weight": torch.zeros(2, 2)},
        )
    ):
        with subtests.test(number=number):
            folder, out = pickled(copy, state), tmp_path / f"plain-{number}"
            with fails(CheckpointError, folder / "pytorch_model.bin"):
                convert(str(folder), out)
            assert not out.exists()


def test_a_damaged_pickle_is_refused(copy: Copy, tmp_path: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for number, content in enumerate(
        (
            b"",
            b"garbage",
            b"PK\x03\x04 cut short",
        )
    ):
        with subtests.test(content=content):
            folder = copy(files={"model.safetensors": None, "pytorch_model.bin": content})
            with fails(CheckpointError, folder / "pytorch_model.bin"):
                convert(str(folder), tmp_path / f"plain-{number}")


def test_a_pickle_smaller_than_its_vocabulary_is_refused(copy: Copy, masked_lm: Any, tmp_path: Path) -> None:
    folder = pickled(copy, masked_lm.state_dict())
    with (folder / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("하나더\n")
    with pytest.raises(CheckpointError, match="subwords"):
        convert(str(folder), tmp_path / "plain")


def test_nothing_to_convert_is_not_answered_by_convert(copy: Copy, tmp_path: Path) -> None:
    folder = copy(files={"model.safetensors": None})
    with pytest.raises(CheckpointError, match=re.escape("no model.safetensors")) as caught:
        convert(str(folder), tmp_path / "plain")
    assert "convert once" not in caught.value.fix


def test_the_place_of_the_copy_must_be_writable(standins: dict[str, Path], tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("in the way")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        convert(str(standins["klue-bert"]), tmp_path / "file")


def test_the_command_prints_the_folder(standins: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    assert main([str(standins["klue-bert"]), "--out", str(tmp_path / "plain")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'plain'}\n"
    with pytest.raises(UsageError, match="did you mean '--out'"):
        main([str(standins["klue-bert"]), "--outt", "x", "--out", "y"])
