"""Sentence embeddings: encode texts as unit vectors; train, run and evaluate embedders.

    python -m downstream.embed train RECIPE --model ENCODER --out DIR
    python -m downstream.embed encode FILE --out vectors.npy
    python -m downstream.embed vectors FILE --model TEACHER --out DIR        # targets of the stage teacher_vectors
    python -m downstream.embed pairs --tasks klue-sts klue-nli --out pairs.jsonl    # texts of downstream.distill
    python -m downstream.embed evaluate korsts-dev klue-sts --lexical

A model is a sentence-transformers folder, usable with `sentence_transformers` and `mteb` as it is. An encoder without
pooling, such as kpfBERT, gets mean pooling over its token vectors, [CLS] and [SEP] included: the best pooling in
Reimers and Gurevych 2019 (section 6), and that of kpfSBERT.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpora.corpus import corpus_files, corpus_texts, read_corpus
from corpora.documents import Document, RejectedRecord, read_documents, report_rejected
from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import alone, atomic_file
from downstream.embeddings.compact import as_int8, cosines, shorten
from downstream.embeddings.embedder import BATCH_SIZE, Embedder, bundled_embedder, encode

__all__ = ["Embedder", "as_int8", "bundled_embedder", "cosines", "encode", "main", "shorten"]

PRECISIONS = ("float32", "int8")


def main(argv: list[str] | None = None) -> int:
    """Train, run or evaluate an embedder from the command line."""
    actions = {
        "train": _main_train,
        "encode": _main_encode,
        "vectors": _main_vectors,
        "pairs": _main_pairs,
        "evaluate": _main_evaluate,
    }
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in actions:
        return actions[arguments[0]](list(arguments[1:]))
    parser = ArgumentParser("python -m downstream.embed", "Train, run or evaluate sentence embeddings.")
    parser.add_argument("action", choices=sorted(actions), help="each has its own --help")
    parser.parse(list(arguments[:1]))
    raise AssertionError("argparse lets only the actions pass")


def _main_train(argv: list[str]) -> int:
    from downstream.embeddings.recipe import find_embed_recipe, read_embed_recipe
    from downstream.embeddings.training import train_embedder

    parser = ArgumentParser("python -m downstream.embed train", "Train an embedder; the same command resumes it.")
    parser.add_argument("recipe", help="TOML file with the stages, or a bundled recipe: kpfsbert")
    parser.add_argument("--model", required=True, help="encoder: folder, hub id, or kpfbert, klue-bert, kobert, mbert")
    parser.add_argument("--out", type=Path, required=True, help="folder for the embedder")
    parser.add_argument("--seed", type=int, help="seed of heads, data order and dropout; default: the recipe's")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    arguments = parser.parse(argv)
    overrides = {} if arguments.seed is None else {"seed": arguments.seed}
    recipe = read_embed_recipe(find_embed_recipe(arguments.recipe), overrides)
    with alone(arguments.out):
        manifest = train_embedder(arguments.model, recipe, out=arguments.out, data=arguments.data)
    sys.stdout.write(json.dumps(manifest["scores"], ensure_ascii=False) + "\n")
    return EXIT_DONE


def _main_encode(argv: list[str]) -> int:
    parser = ArgumentParser("python -m downstream.embed encode", "Encode the texts of a file.")
    _add_texts(parser)
    parser.add_argument("--out", type=Path, required=True, help=".npy file: float32 (N, D), one row per text")
    parser.add_argument("--ids", type=Path, help="file for the id of each row's text; bad records then get no row")
    parser.add_argument("--model", help="embedder: folder or hub id; default: the bundled one")
    _add_compact(parser)
    arguments = parser.parse(argv)
    embedder = Embedder.load(arguments.model, is_int8=arguments.int8)
    dimension = _dimension(arguments.dimension, embedder)
    rejected: list[RejectedRecord] = []
    documents = _read(arguments, rejected)
    if rejected and arguments.ids is None:
        bad = rejected[0]
        fix = "correct the record, or give --ids FILE: other records get vectors, and FILE says which row is whose"
        raise DataError(bad.where, bad.reason, fix)
    texts = _texts(documents, arguments)
    vectors = shorten(embedder.encode(texts, batch_size=arguments.batch_size, progress=True), dimension)
    with atomic_file(arguments.out, "wb") as file:
        np.save(file, as_int8(vectors) if arguments.precision == "int8" else vectors, allow_pickle=False)
    if arguments.ids:
        with atomic_file(arguments.ids, "w") as file:
            file.writelines(f"{' '.join(document.id.split())}\n" for document in documents)
    summary = {"texts": len(vectors), "dimension": dimension, "sha256": embedder.sha256}
    sys.stdout.write(json.dumps(summary | ({"rejected": len(rejected)} if rejected else {})) + "\n")
    return report_rejected(rejected)


def _main_vectors(argv: list[str]) -> int:
    from downstream.embeddings.vectors import write_vectors

    parser = ArgumentParser(
        "python -m downstream.embed vectors", "Store a teacher's vectors; the same command resumes it."
    )
    _add_texts(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder for the vectors")
    parser.add_argument("--model", required=True, help="teacher: folder or hub id")
    parser.add_argument("--prompt", default="", help="written before every text, e.g. 'query: '; default: nothing")
    parser.add_argument("--attribution", default="", help="line for the cards of models that learn from the vectors")
    parser.add_argument(
        "--reuse", type=Path, action="append", default=[], metavar="DIR", help="copy the vectors of equal texts"
    )
    arguments = parser.parse(argv)
    manifest = write_vectors(
        _texts_to_store(arguments),
        Embedder.load(arguments.model, is_int8=arguments.int8),
        arguments.out,
        prompt=arguments.prompt,
        attribution=arguments.attribution,
        batch_size=arguments.batch_size,
        reuse=arguments.reuse,
    )
    sys.stdout.write(json.dumps(manifest.model_dump(), ensure_ascii=False) + "\n")
    return EXIT_DONE


def _main_pairs(argv: list[str]) -> int:
    from downstream.embeddings.neighbours import RANKS, similar_pairs

    parser = ArgumentParser(
        "python -m downstream.embed pairs",
        "Write pairs of texts without labels, each text with some of its neighbours: for downstream.distill.",
    )
    parser.add_argument("files", type=Path, nargs="*", help=".txt (a text per line), .jsonl, .json, .csv or .tsv")
    parser.add_argument("--tasks", nargs="+", default=[], metavar="TASK", help="texts of their training splits, too")
    parser.add_argument("--out", type=Path, required=True, help=".jsonl file with the columns text and pair")
    parser.add_argument("--per-text", type=int, default=3, help=f"neighbours of each text, 1 to {len(RANKS)}")
    parser.add_argument("--max-chars", type=int, default=150, help="leave longer texts out")
    parser.add_argument("--model", help="embedder: folder or hub id; default: the bundled one")
    parser.add_argument("--seed", type=int, default=0, help="of the neighbours and their order")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    arguments = parser.parse(argv)
    if not arguments.files and not arguments.tasks:
        raise UsageError("pairs", "no texts are named", "give files, or --tasks such as klue-sts")
    if not 1 <= arguments.per_text <= len(RANKS):
        raise UsageError("--per-text", f"{arguments.per_text} neighbours", f"give 1 to {len(RANKS)}")
    found = list(dict.fromkeys(text.strip() for text in _texts_to_pair(arguments)))
    texts = [text for text in found if text and len(text) <= arguments.max_chars]
    if len(texts) < 2:
        what = f"{len(texts)} texts of at most {arguments.max_chars} characters"
        raise UsageError("pairs", what, "give at least two texts, or raise --max-chars")
    pairs = similar_pairs(encode(texts, model=arguments.model, progress=True), arguments.per_text, arguments.seed)
    with atomic_file(arguments.out) as file:
        for a, b in pairs:
            file.write(json.dumps({"text": texts[a], "pair": texts[b]}, ensure_ascii=False) + "\n")
    counts = {"texts": len(texts), "left_out": len(found) - len(texts), "pairs": len(pairs)}
    sys.stdout.write(json.dumps(counts) + "\n")
    return EXIT_DONE


def _texts_to_pair(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the texts of files, and of the training splits of tasks."""
    from corpora.official import data_root
    from downstream.task import TextExample, get_task, read_task

    for file in arguments.files:
        for document in read_documents(file, text_unit="line"):
            yield document.text
    for name in arguments.tasks:
        for example in read_task(get_task(name), data_root(arguments.data)).train.examples:
            if not isinstance(example, TextExample):
                raise UsageError(name, "its examples are no single texts or pairs", "give a task such as klue-sts")
            yield from filter(None, (example.text, example.pair))


def _texts_to_store(arguments: argparse.Namespace) -> list[str]:
    """Return the texts that an encoder reads of a corpus, in their order, or the different texts of a file."""
    if arguments.file.is_dir() and arguments.text is None:
        _check_batch_size(arguments)
        return [text for file in corpus_files(arguments.file) for text in corpus_texts(file)]
    return list(dict.fromkeys(text for text in _texts(_read(arguments), arguments) if text.strip()))


def _add_texts(parser: ArgumentParser) -> None:
    """Add the options that say what is encoded, and how fast."""
    parser.add_argument("file", type=Path, help=".txt (a text per line), .jsonl, .json, .csv, .tsv, or a corpus folder")
    parser.add_argument("--text", help="column to encode, e.g. title; default: the documents' text")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--int8", action="store_true", help="weights of 8 bits: faster on a CPU, a little less exact")


def _read(arguments: argparse.Namespace, rejected: list[RejectedRecord] | None = None) -> list[Document]:
    """Return the documents; bad records of a file are appended to REJECTED, or the first one raises."""
    _check_batch_size(arguments)
    if arguments.file.is_dir():
        if arguments.text not in {None, "text", "title"}:
            raise UsageError("--text", f"a corpus has no column '{arguments.text}'", "give text or title")
        return list(read_corpus(arguments.file))
    fields = {"text": arguments.text} if arguments.text else {}
    return list(read_documents(arguments.file, fields=fields, text_unit="line", rejected=rejected))


def _check_batch_size(arguments: argparse.Namespace) -> None:
    if arguments.batch_size < 1:
        raise UsageError("--batch-size", f"{arguments.batch_size} is less than 1", "give 1 or more")


def _texts(documents: list[Document], arguments: argparse.Namespace) -> list[str]:
    """Return what is encoded: of a corpus the field that is asked for; a file was read with it as the text."""
    if arguments.file.is_dir() and arguments.text == "title":
        return [document.title for document in documents]
    return [document.text for document in documents]


def _add_compact(parser: ArgumentParser) -> None:
    parser.add_argument("--dimension", type=int, help="keep that many components; default: all")
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0], help="of the vectors")


def _dimension(asked: int | None, embedder: Embedder) -> int:
    """Return the number of components that are kept."""
    dimension = embedder.dimension if asked is None else asked
    if not 1 <= dimension <= embedder.dimension:
        raise UsageError("--dimension", f"{dimension} of {embedder.dimension} components", "give one of them or more")
    return dimension


def _main_evaluate(argv: list[str]) -> int:
    from downstream.embeddings.similarity import LEXICAL, evaluate_embedder, evaluate_lexical

    parser = ArgumentParser("python -m downstream.embed evaluate", "Compare cosines with annotated similarities.")
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="e.g. korsts, korsts-dev, klue-sts")
    parser.add_argument("--model", help="embedder: folder or hub id; default: the bundled one")
    parser.add_argument("--data", type=Path, help="data root; default: PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--lexical", action="store_true", help="evaluate the lexical baselines too")
    _add_compact(parser)
    arguments = parser.parse(argv)
    embedder = Embedder.load(arguments.model)
    dimension = None if arguments.dimension is None else _dimension(arguments.dimension, embedder)
    compact: dict[str, Any] = {"dimension": dimension, "is_int8": arguments.precision == "int8"}
    for name in arguments.tasks:
        results = [evaluate_embedder(name, embedder, data=arguments.data, **compact)]
        results += [evaluate_lexical(name, measure, data=arguments.data) for measure in LEXICAL if arguments.lexical]
        for result in results:
            line = {"task": result.task, "split": result.split, "model": result.model, "metrics": result.metrics}
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
