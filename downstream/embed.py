"""Sentence embeddings: texts in, unit vectors out, and the command that trains, runs and scores the models for it.

    python -m downstream.embed train RECIPE --model ENCODER --out DIR
    python -m downstream.embed encode FILE --out vectors.npy
    python -m downstream.embed evaluate korsts-dev klue-sts --lexical

A model is a sentence-transformers folder; it runs unchanged in `sentence_transformers` and under `mteb`. An encoder
without pooling, such as kpfBERT, gets the mean of its token vectors, [CLS] and [SEP] included and padding left out:
what Reimers and Gurevych 2019 found best (section 6), and what kpfSBERT does.
"""

import contextlib
import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from corpora.documents import nfc
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import CheckpointError, UsageError
from corpora.foundation.files import atomic_file, package_path, sha256
from corpora.foundation.machine import no_file_bars, num_threads, torch_threads
from downstream.encoders.hub import resolve, weights_sha256_paths
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import PICKLED_WEIGHTS, load_model
from downstream.runtimes.numpy_bert import NumpyBert, is_plain_bert

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Vectors: TypeAlias = NDArray[np.float32]

BUNDLED = package_path("downstream", "bundled", "embedder")
PIPELINE = "modules.json"
"""What tells a sentence-transformers folder from a plain encoder."""
MANIFEST_FILE = "manifest.json"
BATCH_SIZE = 64
WINDOW = 8192
"""Texts that are tokenised and sorted at a time: memory does not grow with the number of texts, but for the vectors."""
MAX_LENGTH = 512
"""Tokens that a model reads of which no file says so: BERT's."""
MAX_SIDE_BY_SIDE = 8
"""Batches that are computed at once; each takes memory of its own."""
SMALL_WIDTH = 384
"""Of a model that has too little to do in one operation to share it among threads."""
NUMPY_PRODUCTS = 2e12
"""Multiplications, one token for each character, up to which NumPy is done before PyTorch, which has to be imported:
those of 600,000 characters for the bundled embedder, of 20,000 for one of BERT's base size. Measured on two cores."""
CHARACTERS_PER_TOKEN = 256
"""Characters that are looked at, for every token that a model takes; what is behind them would be cut off anyway."""
LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def encode(
    texts: Iterable[str],
    *,
    model: "str | Path | Embedder | None" = None,
    batch_size: int = BATCH_SIZE,
    progress: bool = False,
) -> Vectors:
    """Embed texts; the cosine of two vectors, which is their inner product, says how alike the texts are.

    Args:
        texts: any strings. They enter as NFC, lone surrogates as U+FFFD. What exceeds the model's length is cut off at
            the end. A text without a token, such as the empty one, gets the vector of the special tokens alone.
        model: folder, hub id, known encoder or loaded `Embedder`; default: the bundled embedder.
        batch_size: texts that are computed together.
        progress: show a bar on a terminal.

    Returns:
        float32 (N, D), one row of length 1 for each text, in the order of the texts. A text has the same vector
        alone and in any batch, to within 1e-5.

    Raises:
        CheckpointError: the model is missing or unusable.
        ValueError: `texts` is one string, or holds something else than strings.
    """
    embedder = model if isinstance(model, Embedder) else Embedder.load(model)
    return embedder.encode(texts, batch_size=batch_size, progress=progress)


Compute: TypeAlias = Callable[[Sequence[str], int, Callable[[int], object]], Vectors]
"""Clean texts, batch size and what to call with the number of texts done → float32 (N, D), of any length."""


@dataclass(frozen=True)
class Embedder:
    """A loaded model; see `Embedder.load`."""

    folder: Path
    dimension: int
    """Length D of the vectors."""
    max_length: int
    """Tokens that are read of a text, special tokens included."""
    num_parameters: int
    _device: str | None
    """Of PyTorch; None: to be found when it is needed."""
    _compute_for: Callable[[int], Compute]
    """Characters of all texts → what computes them."""

    @classmethod
    def load(cls, source: "str | Path | None" = None, *, device: str | None = None) -> "Embedder":
        """Load a model in single precision. The one that was loaded last is kept, and not loaded again.

        Weights are read from safetensors only, and no code that comes with a model is run.

        Args:
            source: folder, hub id or known encoder; default: the bundled embedder.
            device: of PyTorch, e.g. `cuda:1`; default: the first GPU, else the CPU, and for a few thousand titles
                neither: NumPy has computed them before PyTorch would be ready.

        Raises:
            CheckpointError: the model is missing or unusable.
        """
        folder = bundled_embedder() if source is None else resolve(str(source))
        stamps = tuple((str(path), path.stat().st_mtime_ns) for path in model_files(folder))
        return _load(folder.resolve(), device, stamps)

    @property
    def device(self) -> str:
        """Where many texts are computed, e.g. `cpu`."""
        return self._device or default_device()

    @property
    def sha256(self) -> str:
        """Digest of all files that decide the vectors."""
        return sha256(*model_files(self.folder))

    def encode(self, texts: Iterable[str], *, batch_size: int = BATCH_SIZE, progress: bool = False) -> Vectors:
        """Embed texts; see `downstream.embed.encode`."""
        from tqdm import tqdm

        if isinstance(texts, str):
            raise ValueError("texts is one string; give a list of strings")
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} is less than 1")
        clean = [clean_text(text, self.max_length * CHARACTERS_PER_TOKEN) for text in texts]
        vectors = np.empty((len(clean), self.dimension), dtype=np.float32)
        compute = self._compute_for(sum(map(len, clean)))
        with tqdm(total=len(clean), desc="embed", unit="text", disable=None if progress else True) as bar:
            for first in range(0, len(clean), WINDOW):
                window = clean[first : first + WINDOW]
                vectors[first : first + len(window)] = compute(window, batch_size, bar.update)
        # A length from single precision would be off by more than the last digit.
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)  # (N, 1)
        if not (np.isfinite(lengths).all() and (lengths > 0).all()):
            raise CheckpointError(self.folder, "the model gives vectors without a direction", "train or load another")
        unit: Vectors = (vectors / lengths).astype(np.float32)
        return unit


def default_device() -> str:
    """Return `cuda` where there is a GPU, else `cpu`."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def bundled_embedder() -> Path:
    """Return the folder of the embedder that comes with the package.

    Raises:
        CheckpointError: there is none in this installation.
    """
    if not (BUNDLED / PIPELINE).is_file():
        train = "python -m downstream.embed train RECIPE --model ENCODER --out DIR"
        raise CheckpointError(BUNDLED, "no embedder is bundled", f"name one with model=…, or train one: {train}")
    return BUNDLED


def clean_text(text: object, limit: int | None = None) -> str:
    """Return TEXT as models see it: NFC, lone surrogates as U+FFFD, at most LIMIT characters.

    Raises:
        ValueError: it is no string.
    """
    if not isinstance(text, str):
        raise ValueError(f"a text is {text!r:.40}, which is no string")
    return LONE_SURROGATES.sub("\ufffd", nfc(text)[:limit])


def model_files(folder: Path) -> list[Path]:
    """Return the files that decide the vectors of a model, in a fixed order."""
    modules = [path for kind in ("*/*.json", "*/*.safetensors") for path in folder.glob(kind)]
    return weights_sha256_paths(folder) + sorted(path for path in modules if (folder / PIPELINE).is_file())


@functools.lru_cache(maxsize=1)
def _load(folder: Path, device: str | None, _stamps: tuple[tuple[str, int], ...]) -> Embedder:
    """Load a model; STAMPS make a folder that was written anew another one."""
    check_is_safe(folder)
    if not (folder / PIPELINE).is_file():
        return _load_mean_pooled(folder, None, device)
    settings = _read_settings(folder)
    if _is_mean_pooling(settings):
        return _load_mean_pooled(folder, settings, device)
    return _load_pipeline(folder, device or default_device())


def check_is_safe(folder: Path) -> None:
    """Refuse a sentence-transformers folder with pickled weights or with modules of its own.

    Raises:
        CheckpointError: it is one.
    """
    if not (folder / PIPELINE).is_file():
        return
    for module in _read_json(folder / PIPELINE, list):
        kind, place = str(module.get("type")), folder / str(module.get("path", ""))
        if not kind.startswith("sentence_transformers."):
            fix = "load it with sentence_transformers yourself if you trust it"
            raise CheckpointError(folder / PIPELINE, f"module {kind} is code of its own, which is not run", fix)
        pickled = [place / name for name in PICKLED_WEIGHTS if (place / name).is_file()]
        if pickled and not any(place.glob("*.safetensors")):
            raise CheckpointError(pickled[0], "pickled weights", "save the model again as safetensors")


def _read_json(path: Path, kind: type[Any]) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else kind()
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(path, f"not valid JSON ({error})", "download it again") from error
    if not isinstance(value, kind):
        raise CheckpointError(
            path, f"a {type(value).__name__} where a {kind.__name__} is expected", "download it again"
        )
    return value


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return what a sentence-transformers folder says of itself, from its several files."""
    modules = _read_json(folder / PIPELINE, list)
    kinds = [str(module.get("type")).rsplit(".", 1)[-1] for module in modules]
    pooling = [module for module, kind in zip(modules, kinds, strict=True) if kind == "Pooling"]
    return {
        "kinds": kinds,
        "is_flat": not modules or not modules[0].get("path"),
        "transformer": _read_json(folder / "sentence_bert_config.json", dict),
        "pooling": _read_json(folder / str(pooling[0]["path"]) / "config.json", dict) if pooling else {},
        "whole": _read_json(folder / "config_sentence_transformers.json", dict),
    }


def _is_mean_pooling(settings: dict[str, Any]) -> bool:
    """Whether the folder is an encoder and the mean over its tokens, and nothing that changes a direction.

    Such a folder, which is what training here makes, is run without sentence_transformers: importing that takes longer
    than importing all the rest.
    """
    pooling, transformer, whole = settings["pooling"], settings["transformer"], settings["whole"]
    modes = [name for name, is_on in pooling.items() if name.startswith("pooling_mode_") and is_on is True]
    return (
        settings["kinds"] in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
        and settings["is_flat"]
        and (pooling.get("pooling_mode", "mean") == "mean" and modes in ([], ["pooling_mode_mean_tokens"]))
        and not transformer.get("do_lower_case")
        and not transformer.get("processing_kwargs")
        and transformer.get("transformer_task", "feature-extraction") == "feature-extraction"
        and not whole.get("default_prompt_name")
        and not whole.get("truncate_dim")
    )


def _open_tokenizer(folder: Path, settings: dict[str, Any]) -> "PreTrainedTokenizerBase":
    """Open the tokenizer of a sentence-transformers folder as it was saved: whoever trained it settled its quirks."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizers library raises plain Exception for what it cannot parse
        raise CheckpointError(folder, f"the tokenizer files are damaged ({error})", "download them again") from error
    tokenizer.model_max_length = _max_length(folder, settings)
    return tokenizer


def _max_length(folder: Path, settings: dict[str, Any]) -> int:
    """Return how many tokens a sentence-transformers folder reads: the least of what its files say."""
    config = _read_json(folder / "config.json", dict)
    # RoBERTa numbers positions from pad_token_id + 1.
    offset = int(config.get("pad_token_id") or 0) + 1 if "roberta" in str(config.get("model_type")) else 0
    said = (
        int(config.get("max_position_embeddings") or 0) - offset,
        int(settings["transformer"].get("max_seq_length") or 0),
        int(_read_json(folder / "tokenizer_config.json", dict).get("model_max_length") or 0),
    )
    return min((length for length in said if length > 0), default=MAX_LENGTH)


def _load_mean_pooled(folder: Path, settings: dict[str, Any] | None, device: str | None) -> Embedder:
    """Load an encoder, whose vectors are pooled by the mean.

    Args:
        folder: of the encoder.
        settings: what makes it a sentence-transformers folder; None: it is a plain encoder.
        device: of PyTorch; None: NumPy computes what is too little to import PyTorch for (`NUMPY_PRODUCTS`).
    """
    if device is not None or not is_plain_bert(folder):
        return _torch_embedder(folder, settings, device or default_device())
    bert = NumpyBert.load(folder)
    max_length = bert.tokenizer.model_max_length if settings is None else _max_length(folder, settings)
    padding = int(bert.tokenizer.pad_token_id or 0)

    def compute(texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> Vectors:
        rows = bert.tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
        workers = min(num_threads(), MAX_SIDE_BY_SIDE)
        with ThreadpoolController().limit(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            return _by_batches(
                rows, batch_size, bert.hidden_size, lambda rows: bert.means(*_pad(rows, padding)), pool.map, advance
            )

    torch_embedder = functools.cache(lambda: _torch_embedder(folder, settings, default_device()))
    return Embedder(
        folder=folder,
        dimension=bert.hidden_size,
        max_length=max_length,
        num_parameters=bert.num_parameters,
        _device=None,
        _compute_for=lambda characters: (
            compute
            if characters * bert.products_per_token <= NUMPY_PRODUCTS
            else torch_embedder()._compute_for(characters)
        ),
    )


def _torch_embedder(folder: Path, settings: dict[str, Any] | None, device: str) -> Embedder:
    import torch

    tokenizer = load_tokenizer(folder) if settings is None else _open_tokenizer(folder, settings)
    with quiet_transformers():
        model = load_model(folder, tokenizer, "AutoModel", {}).eval().to(device)
    max_length = int(tokenizer.model_max_length)

    @torch.inference_mode()
    def means(rows: Sequence[Sequence[int]]) -> Vectors:
        ids, mask = (torch.from_numpy(array).to(device) for array in _pad(rows, int(tokenizer.pad_token_id or 0)))
        tokens = model(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, T, D)
        seen = mask.unsqueeze(-1)
        mean: Vectors = ((tokens * seen).sum(dim=1) / seen.sum(dim=1)).cpu().numpy()
        return mean

    def compute(texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> Vectors:
        rows = tokenizer(list(texts), truncation=True, max_length=max_length)["input_ids"]
        width = int(model.config.hidden_size)
        if device.partition(":")[0] != "cpu" or width > SMALL_WIDTH:
            return _by_batches(rows, batch_size, width, means, map, advance)
        with _side_by_side() as run:
            return _by_batches(rows, batch_size, width, means, run, advance)

    return Embedder(
        folder=folder,
        dimension=int(model.config.hidden_size),
        max_length=max_length,
        num_parameters=sum(p.numel() for p in model.parameters()),
        _device=device,
        _compute_for=lambda _: compute,
    )


def _by_batches(
    rows: Sequence[Sequence[int]],
    batch_size: int,
    dimension: int,
    means: Callable[[Sequence[Sequence[int]]], Vectors],
    run: Callable[..., Iterable[Vectors]],
    advance: Callable[[int], object],
) -> Vectors:
    """Compute rows of ids in batches of like length, the longest first; RUN is a `map`."""
    order = sorted(range(len(rows)), key=lambda k: -len(rows[k]))
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    vectors = np.empty((len(rows), dimension), dtype=np.float32)
    for chosen, found in zip(batches, run(means, [[rows[k] for k in batch] for batch in batches]), strict=True):
        vectors[chosen] = found
        advance(len(chosen))
    return vectors


def _pad(rows: Sequence[Sequence[int]], padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids and mask, (B, T) each."""
    ids = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = row, 1
    return ids, mask


@contextlib.contextmanager
def _side_by_side() -> Iterator[Callable[..., Iterable[Any]]]:
    """Give a `map` that runs batches of a small model on the threads that PyTorch may use, one thread for each batch.

    Threads that share one small operation spend more time waiting for each other than computing.
    """
    import torch

    workers = min(torch.get_num_threads(), MAX_SIDE_BY_SIDE)
    with torch_threads(1), ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.map


def _load_pipeline(folder: Path, device: str) -> Embedder:
    """Load any other sentence-transformers folder, e.g. with [CLS] pooling, a dense layer or a prompt."""
    model = open_sentence_transformer(folder, device)

    def compute(texts: Sequence[str], batch_size: int, advance: Callable[[int], object]) -> Vectors:
        vectors: Vectors = np.asarray(model.encode(list(texts), batch_size=batch_size, show_progress_bar=False))
        advance(len(texts))
        return vectors

    return Embedder(
        folder=folder,
        dimension=int(model.get_embedding_dimension()),
        max_length=int(model.max_seq_length),
        num_parameters=sum(p.numel() for p in model.parameters()),
        _device=device,
        _compute_for=lambda _: compute,
    )


def open_sentence_transformer(folder: Path, device: str) -> Any:
    """Open a sentence-transformers folder with that library, in single precision, without network or foreign code.

    Raises:
        CheckpointError: the folder is unsafe or cannot be read.
    """
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    check_is_safe(folder)
    try:
        with quiet_transformers():
            model = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
    except (SafetensorError, OSError, RuntimeError, ValueError, KeyError, ImportError) as error:
        raise CheckpointError(folder, f"the model cannot be read ({error})", "download the folder again") from error
    _check_complete(folder, model.transformers_model)
    return model


def _check_complete(folder: Path, encoder: Any) -> None:
    """Refuse weights with gaps, which sentence_transformers would fill at random with no more than a warning."""
    from safetensors import safe_open

    places = [folder / str(module.get("path", "")) for module in _read_json(folder / PIPELINE, list)[:1]]
    stored: set[str] = set()
    for path in (path for place in places for path in place.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            stored.update(file.keys())
    # Checkpoints older than 2019 name LayerNorm's tensors gamma and beta; some have the encoder below a head.
    known = {name.replace("gamma", "weight").replace("beta", "bias") for name in stored}
    known |= {name.partition(".")[2] for name in known}
    names = [] if encoder is None else encoder.state_dict()
    lost = [name for name in names if name.startswith(("encoder.layer", "embeddings.")) and name not in known]
    if lost:
        what = f"{len(lost)} encoder weights are missing, e.g. {lost[0]}"
        raise CheckpointError(folder, what, "give the weights that belong to the config")


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence reports on heads and poolers inside, which sentence embeddings leave out on purpose."""
    import transformers

    library: Any = transformers.utils.logging  # annotates only parts of itself
    before = library.get_verbosity()
    library.set_verbosity_error()
    try:
        with no_file_bars():
            yield
    finally:
        library.set_verbosity(before)


def main(argv: list[str] | None = None) -> int:
    """Train, run or score an embedder from the command line."""
    actions = {"train": _main_train, "encode": _main_encode, "evaluate": _main_evaluate}
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in actions:
        return actions[arguments[0]](list(arguments[1:]))
    parser = ArgumentParser("python -m downstream.embed", "Train, run or score sentence embeddings.")
    parser.add_argument("action", choices=sorted(actions), help="each of them has a --help of its own")
    parser.parse(list(arguments[:1]))
    raise AssertionError("argparse lets only the actions pass")


def _main_train(argv: list[str]) -> int:
    from downstream.embeddings.recipe import find_embed_recipe, read_embed_recipe
    from downstream.embeddings.training import train_embedder

    parser = ArgumentParser("python -m downstream.embed train", "Train an embedder; run it again to go on.")
    parser.add_argument("recipe", help="a TOML file with the stages, or one of ours: kpfsbert")
    parser.add_argument("--model", required=True, help="encoder: folder, hub id, or kpfbert, klue-bert, kobert, mbert")
    parser.add_argument("--out", type=Path, required=True, help="folder for the embedder")
    parser.add_argument("--seed", type=int, help="of heads, order and dropout; default: the recipe's")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    arguments = parser.parse(argv)
    overrides = {} if arguments.seed is None else {"seed": arguments.seed}
    recipe = read_embed_recipe(find_embed_recipe(arguments.recipe), overrides)
    manifest = train_embedder(arguments.model, recipe, out=arguments.out, data=arguments.data)
    sys.stdout.write(json.dumps(manifest["scores"], ensure_ascii=False) + "\n")
    return EXIT_DONE


def _main_encode(argv: list[str]) -> int:
    from corpora.corpus import read_corpus
    from corpora.documents import read_documents

    parser = ArgumentParser("python -m downstream.embed encode", "Write the vectors of a file's texts.")
    parser.add_argument(
        "file", type=Path, help="lines of .txt, records of .jsonl, .json, .csv, .tsv, or a corpus folder"
    )
    parser.add_argument("--out", type=Path, required=True, help=".npy file: float32 (N, D), a row for each text")
    parser.add_argument("--text", help="column that is embedded, e.g. title; default: the text of the documents")
    parser.add_argument("--model", help="embedder: folder or hub id; default: the bundled one")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments = parser.parse(argv)
    if arguments.batch_size < 1:
        raise UsageError("--batch-size", f"{arguments.batch_size} is less than 1", "give 1 or more")
    if arguments.file.is_dir():
        if arguments.text not in {None, "text", "title"}:
            raise UsageError("--text", f"a corpus has no column '{arguments.text}'", "give text or title")
        texts = [getattr(document, arguments.text or "text") for document in read_corpus(arguments.file)]
    else:
        fields = {"text": arguments.text} if arguments.text else {}
        texts = [document.text for document in read_documents(arguments.file, fields=fields, text_unit="line")]
    embedder = Embedder.load(arguments.model)
    vectors = embedder.encode(texts, batch_size=arguments.batch_size, progress=True)
    with atomic_file(arguments.out, "wb") as file:
        np.save(file, vectors, allow_pickle=False)
    sys.stdout.write(json.dumps({"texts": len(vectors), "dimension": embedder.dimension, "sha256": embedder.sha256}))
    sys.stdout.write("\n")
    return EXIT_DONE


def _main_evaluate(argv: list[str]) -> int:
    from downstream.embeddings.similarity import LEXICAL, evaluate_embedder, evaluate_lexical

    parser = ArgumentParser("python -m downstream.embed evaluate", "Score cosines on pairs with a similarity.")
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="e.g. korsts, korsts-dev, klue-sts")
    parser.add_argument("--model", help="embedder: folder or hub id; default: the bundled one")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--lexical", action="store_true", help="score the lexical baselines beside it")
    arguments = parser.parse(argv)
    for name in arguments.tasks:
        results = [evaluate_embedder(name, arguments.model, data=arguments.data)]
        results += [evaluate_lexical(name, measure, data=arguments.data) for measure in LEXICAL if arguments.lexical]
        for result in results:
            line = {"task": result.task, "split": result.split, "model": result.model, "metrics": result.metrics}
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
