"""Attacks by model folders: code, sizes, links, pickles, damaged files."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification

from downstream.encoders.folder import BUNDLED
from pretraining.folders import seal
from tests.attacks.attack import Attack
from tests.attacks.openers import EVERYWHERE, classify, compare, embed, load, perplexity, to_plain

MARKER = "MARKER"
"""Name of the environment variable with the path of a file that must not appear."""
CODE = f"import os, pathlib\npathlib.Path(os.environ['{MARKER}']).write_text('ran')\n"
DEEP = "[" * 1_000_000


def build_model(folder: Path) -> Path:
    """Write a tiny classifier with the bundled vocabulary."""
    shutil.copytree(BUNDLED / "classifier", folder, ignore=shutil.ignore_patterns("*.safetensors", "README.md"))
    config = BertConfig(
        vocab_size=16_000,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
        finetuning_task="nsmc",
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


Change = Callable[[Path], None]


def config(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content) and None


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return apply


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        weights = load_file(path)
        change(weights)
        save_file({name: part.contiguous() for name, part in weights.items()}, path, metadata={"format": "pt"})

    return apply


def remote_code(folder: Path) -> None:
    (folder / "evil.py").write_text(CODE)
    config(model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"})(folder)


def known_with_code(folder: Path) -> None:
    (folder / "evil.py").write_text(CODE)
    config(auto_map={"AutoModelForSequenceClassification": "evil.Model", "AutoConfig": "evil.Config"})(folder)


def tokenizer_code(folder: Path) -> None:
    (folder / "evil.py").write_text(CODE)
    edit("tokenizer_config.json", lambda old: old | {"auto_map": {"AutoTokenizer": ["evil.T", None]}})(folder)


def both(*changes: Change) -> Change:
    def change(folder: Path) -> None:
        for one in changes:
            one(folder)

    return change


def link_out(name: str) -> Change:
    def change(folder: Path) -> None:
        outside = folder.parent / f"outside-{name}"
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return change


def pipe(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")


class Evil:
    """Runs `CODE` where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (CODE,)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Evil()}))


def flipped(folder: Path) -> None:
    seal(folder)
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")


def heads(content: bytes, extra: int = 0) -> Change:
    """Return what writes weights with a head of its own."""
    data = (len(content) + extra).to_bytes(8, "little") + content + bytes(8)
    return lambda folder: (folder / "model.safetensors").write_bytes(data) and None


def entry(**changes: Any) -> bytes:
    """Return the head of a file of one tensor."""
    one = {"dtype": "F32", "shape": [2], "data_offsets": changes.pop("offsets", [0, 8])} | changes
    return json.dumps({"bert.embeddings.word_embeddings.weight": one}).encode()


def many_tensors() -> bytes:
    return json.dumps(
        {f"t{k}": {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]} for k in range(100_000)}
    ).encode()


def a_folder(name: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


def large_tokenizer(folder: Path) -> None:
    with (folder / "tokenizer.json").open("a", encoding="utf-8") as file:
        file.write(" " * (100 << 20))


def pipeline(modules: Any, **settings: Any) -> Change:
    def change(folder: Path) -> None:
        (folder / "modules.json").write_text(modules if isinstance(modules, str) else json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
        (folder / "evil.py").write_text(CODE)

    return change


def module(kind: str, path: str = "") -> dict[str, Any]:
    return {"idx": 0, "name": "0", "path": path, "type": kind}


TRANSFORMER = module("sentence_transformers.models.Transformer")
PIPELINE = [TRANSFORMER, module("sentence_transformers.models.Pooling", "1_Pooling")]


def embedder_code(folder: Path) -> None:
    pipeline(PIPELINE)(folder)
    config(auto_map={"AutoModel": "evil.M"})(folder)


def _of_config() -> list[tuple[str, Change, str]]:
    return [
        ("a hundred million layers", config(num_hidden_layers=100_000_000), "num_hidden_layers"),
        ("a million layers", config(num_hidden_layers=1_000_000), "num_hidden_layers"),
        ("five hundred layers, two of them stored", config(num_hidden_layers=500, hidden_size=1024), "parameters"),
        ("ten million wide", config(hidden_size=10_000_000), "hidden_size"),
        ("a billion subwords", config(vocab_size=1_000_000_000), "vocab_size"),
        ("a billion positions", config(max_position_embeddings=1_000_000_000), "max_position_embeddings"),
        ("positions are null", config(max_position_embeddings=None), "max_position_embeddings"),
        ("no heads", config(num_attention_heads=0), "num_attention_heads"),
        ("minus four heads", config(num_attention_heads=-4), "num_attention_heads"),
        ("heads that do not divide", config(num_attention_heads=3), "num_attention_heads"),
        ("layers in words", config(num_hidden_layers="four"), "num_hidden_layers"),
        ("labels by name", config(id2label={"one": "a"}), "id2label"),
        ("an infinite rate", config(layer_norm_eps=float("inf")), "layer_norm_eps"),
        (
            "a width of four hundred digits",
            edit("config.json", lambda old: old | {"hidden_size": 10**400}),
            "hidden_size",
        ),
        ("a rate that is NaN", config(initializer_range=float("nan")), "initializer_range"),
        ("a rate of three hundred digits", config(hidden_dropout_prob=10**300), "hidden_dropout_prob"),
        ("a dropout of two", config(hidden_dropout_prob=2.0), ""),
        ("an activation of its own", config(hidden_act="evil.Act"), ""),
        ("kinds of layers without end", config(layer_types=["full"] * 100_000), "layer_types"),
        ("labels without end", config(id2label={str(k): "a" for k in range(200_000)}), "id2label"),
        ("a config that is a folder", a_folder("config.json"), "config.json"),
        ("weights that are a folder", a_folder("model.safetensors"), "safetensors"),
        ("a config a million deep", text("config.json", DEEP), "not valid JSON"),
        ("a config of five megabytes", text("config.json", " " * (5 << 20)), "more than settings have"),
        ("a config that is a list", text("config.json", "[]"), "not an object"),
        ("a config that is a pipe", pipe, "config.json"),
        ("a config elsewhere", link_out("config.json"), "a link that leads out"),
        ("weights elsewhere", link_out("model.safetensors"), "a link that leads out"),
        ("code for an unknown architecture", remote_code, "code that comes with a model is never run"),
        ("code for the tokenizer", tokenizer_code, "auto_map"),
        ("a flipped bit in sealed weights", flipped, "changed since it was written"),
        ("a header of 2^62 bytes", header, "cannot be read"),
        ("a header that is longer than the file", heads(b"{}", extra=500), "cannot be read"),
        ("a header a million deep", heads(DEEP.encode()), "cannot be read"),
        ("a tensor beyond the file", heads(entry(offsets=[0, 1 << 40])), "cannot be read"),
        ("a tensor of more elements than bytes", heads(entry(shape=[1 << 40])), "cannot be read"),
        ("a tensor whose size overflows", heads(entry(shape=[1 << 62, 1 << 62])), "cannot be read"),
        ("a tensor of negative size", heads(entry(shape=[-2])), "cannot be read"),
        ("a tensor that ends before it begins", heads(entry(offsets=[8, 0])), "cannot be read"),
        ("a tensor of an unknown type", heads(entry(dtype="EVIL")), "cannot be read"),
        ("a hundred thousand tensors", heads(many_tensors()), ""),
        ("pickled weights", pickled, "only pickled weights"),
        (
            "an index of files elsewhere",
            text("model.safetensors.index.json", '{"weight_map": {"a": "../../x.safetensors"}}'),
            "names files outside",
        ),
        ("an adapter of another model", text("adapter_config.json", "{}"), "an adapter"),
        (
            "a tokenizer that names another file",
            edit("tokenizer_config.json", lambda old: old | {"vocab_file": "/etc/passwd"}),
            "vocab_file",
        ),
        ("a transposed weight", tensors(lambda w: w.update({QUERY: w[QUERY][:8]})), "cannot be read"),
        ("a weight that is NaN", tensors(lambda w: w[QUERY].fill_(float("nan"))), "NaN"),
        ("a tokenizer a million deep", text("tokenizer.json", DEEP), "tokenizer"),
        ("an empty vocabulary", edit("tokenizer.json", lambda t: _with_model(t, vocab={})), "tokenizer"),
        (
            "a pattern that the tokenizer refuses",
            edit(
                "tokenizer.json",
                lambda t: t | {"normalizer": {"type": "Replace", "pattern": {"Regex": "(((("}, "content": ""}},
            ),
            "tokenizer",
        ),
        (
            "a pattern that backtracks without end",
            edit("tokenizer.json", lambda t: t | {"pre_tokenizer": _split("(이|이)*(나|나)*(a|aa)+$")}),
            "may search without end",
        ),
        ("a vocabulary of four hundred thousand subwords", edit("tokenizer.json", _large_vocabulary), "more than the"),
        ("a tokenizer of a hundred megabytes", large_tokenizer, "tokenizer.json"),
        ("a template with an id out of range", edit("tokenizer.json", lambda t: _with_ids(t)), "tokenizer"),
    ]


def normalizers(value: Any) -> Change:
    return edit("tokenizer.json", lambda tokenizer: tokenizer | {"normalizer": value})


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _large_vocabulary(tokenizer: Any) -> Any:
    more = {f"x{k}": 20_000 + k for k in range(400_000)}
    return _with_model(tokenizer, vocab=tokenizer["model"]["vocab"] | more)


QUERY = "bert.encoder.layer.0.attention.self.query.weight"


def _with_model(tokenizer: Any, **changes: Any) -> Any:
    return tokenizer | {"model": tokenizer["model"] | changes, "added_tokens": []}


def _with_ids(tokenizer: Any) -> Any:
    tokens = tokenizer["post_processor"]["special_tokens"]
    for token in tokens.values():
        token["ids"] = [99_999_999]
    return tokenizer


def model_attacks(base: Path) -> list[Attack]:
    """Return the attacks; BASE is a folder of `build_model`."""

    def maker(change: Change) -> Callable[[Path], Path]:
        def make(folder: Path) -> Path:
            shutil.copytree(base, folder / "model")
            change(folder / "model")
            return folder / "model"

        return make

    attacks = [Attack(name, maker(change), (load, classify), says) for name, change, says in _of_config()]
    attacks += [
        Attack("code for an unknown architecture, by the leaderboard", maker(remote_code), (compare,), codes=(2,)),
        Attack("code for a known architecture", maker(known_with_code), (load, classify), codes=(0,)),
        Attack("a kernel of the hub", maker(config(attn_implementation="evil/kernel")), (load,), codes=(0,)),
        Attack(
            "weights in a foreign format",
            maker(config(quantization_config={"quant_method": "evil"})),
            (load,),
            codes=(0,),
        ),
        Attack("a task that leads up", maker(config(finetuning_task="../../x")), (load, classify), codes=(0, 2)),
        Attack("a padding id out of range", maker(config(pad_token_id=10**8)), (load, classify), codes=(0, 2)),
        Attack("a negative padding id", maker(config(pad_token_id=-5)), (load, classify), codes=(0, 2)),
        Attack("a normalizer that is a list", maker(normalizers([1, 2])), (load, classify), "tokenizer"),
        Attack("a normalizer of numbers", maker(normalizers({"normalizers": [1]})), (load, classify), "tokenizer"),
        Attack("pickled code, converted", maker(pickled), (to_plain,), "not only tensors"),
        Attack(
            "a million layers, evaluated", maker(config(num_hidden_layers=10**6)), (perplexity,), "num_hidden_layers"
        ),
    ]
    pipelines = [
        ("modules that are numbers", pipeline([1, 2]), "no module"),
        ("modules a million deep", pipeline(DEEP), "not valid JSON"),
        ("a module of its own", pipeline([module("evil.Module")]), "never run"),
        ("any attribute as a module", pipeline([module("sentence_transformers.util.import_from_string")]), "never run"),
        ("a module elsewhere", pipeline([module("sentence_transformers.models.Transformer", "../..")]), "outside"),
        (
            "arguments for transformers",
            pipeline(PIPELINE, model_args={"attn_implementation": "evil/kernel"}),
            "model_args",
        ),
    ]
    attacks += [Attack(name, maker(change), (embed,), says) for name, change, says in pipelines]
    everywhere: list[tuple[str, Change]] = [
        ("code and a link out", both(remote_code, link_out("tokenizer.json"))),
        ("code and pickles", both(remote_code, pickled)),
        ("code and a million layers", both(remote_code, config(num_hidden_layers=10**6))),
    ]
    attacks += [Attack(f"{name}, everywhere", maker(change), EVERYWHERE, max_s=4) for name, change in everywhere]
    attacks.append(Attack("code for an embedder", maker(embedder_code), (embed,), "auto_map"))
    return attacks
