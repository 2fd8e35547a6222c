"""Stand-ins for the five compared encoders: the quirks of their files, with tiny vocabularies and random weights."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import sentencepiece
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from downstream.encoders.folder import KORBERT_VOCAB
from pretraining.vocabulary.tokenizer import SPECIAL_TOKENS
from pretraining.vocabulary.wordpiece import train_wordpiece

KOBERT_SPECIAL = ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]")
MBERT_UNUSED = 99


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one core: models this small gain nothing from two, whose threads wait for each other on a busy one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def news_lines() -> list[str]:
    """Return the paragraphs of the embedded news sample."""
    texts = [document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl")]
    return [line for text in texts for line in text.split("\n") if line.strip()]


@pytest.fixture(scope="session")
def write_sentencepiece(news_lines: list[str]) -> Callable[[Path, str], Path]:
    """Return a function that writes KoBERT's tokenizer files to a folder: a SentencePiece model of the given type."""

    def write(folder: Path, model_type: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(news_lines),
            model_prefix=str(folder / "spiece"),
            model_type=model_type,
            vocab_size=2000,
            character_coverage=1.0,
            unk_id=0,
            pad_id=1,
            bos_id=-1,
            eos_id=-1,
            unk_piece="[UNK]",
            pad_piece="[PAD]",
            control_symbols=",".join(KOBERT_SPECIAL[2:]),
            num_threads=1,
            minloglevel=2,
        )
        (folder / "spiece.vocab").unlink()
        # As the hub's folder has it, and wrong: XLNet puts the special tokens last.
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "XLNetTokenizer"}')
        return folder / "spiece.model"

    return write


@pytest.fixture(scope="session")
def standins(
    tmp_path_factory: pytest.TempPathFactory,
    news_lines: list[str],
    write_sentencepiece: Callable[[Path, str], Path],
) -> dict[str, Path]:
    """Return a checkpoint folder for each of the five compared encoders. Nobody writes into them."""
    root = tmp_path_factory.mktemp("encoders")
    ids = train_wordpiece(news_lines, 3000).get_vocab()
    pieces = sorted(ids, key=lambda piece: ids[piece])
    words = pieces[len(SPECIAL_TOKENS) :]
    unused = [f"[unused{k}]" for k in range(1, MBERT_UNUSED + 1)]
    _save_model(root / "kpfbert", len(pieces), masked_lm=True)
    _write_wordpiece(root / "kpfbert", pieces)
    _save_model(root / "klue-bert", len(pieces))
    _write_wordpiece(root / "klue-bert", pieces)
    multilingual = ["[PAD]", *unused, *SPECIAL_TOKENS[1:], *words]
    _save_model(root / "mbert", len(multilingual))
    _write_wordpiece(root / "mbert", multilingual)
    _save_model(root / "kobert", 2000, pad_token_id=1)
    write_sentencepiece(root / "kobert", "unigram")
    _save_model(root / "korbert", _write_korbert_vocab(root / "korbert", news_lines))
    shutil.copy(root / "korbert" / "config.json", root / "korbert" / "bert_config.json")
    return {kind: root / kind for kind in ("kpfbert", "klue-bert", "korbert", "kobert", "mbert")}


def _save_model(folder: Path, vocab_size: int, *, pad_token_id: int = 0, masked_lm: bool = False) -> None:
    """Save a two-layer BERT; a masked language model comes, like kpfBERT, without a pooler."""
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
        pad_token_id=pad_token_id,
    )
    torch.manual_seed(0)
    (BertForMaskedLM(config) if masked_lm else BertModel(config)).save_pretrained(folder)


def _write_wordpiece(folder: Path, pieces: Sequence[str]) -> None:
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _write_korbert_vocab(folder: Path, lines: Sequence[str]) -> int:
    """Write `piece<TAB>count` lines; returns how many. Pieces that end an eojeol carry `_`, none carries `##`."""
    counts: Counter[str] = Counter()
    for eojeol in (f"{eojeol}_" for line in lines for eojeol in line.split()):
        counts.update(eojeol[i:j] for i in range(len(eojeol)) for j in range(i + 1, min(i + 6, len(eojeol)) + 1))
    characters = sorted(piece for piece in counts if len(piece.removesuffix("_")) <= 1)
    frequent = [piece for piece, _ in counts.most_common(3000) if piece not in set(characters)]
    rows = [*SPECIAL_TOKENS, *characters, *frequent]
    folder.mkdir(parents=True, exist_ok=True)
    text = "n_iters=10\nmax_length=6\n" + "".join(f"{piece}\t{counts[piece]}\n" for piece in rows)
    (folder / KORBERT_VOCAB).write_text(text, encoding="utf-8")
    return len(rows)
