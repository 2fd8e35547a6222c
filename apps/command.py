"""The command `pressbert`: a verb, and the arguments of the module that does the work.

    pressbert summarize article.txt          # as python -m apps.summarize article.txt
    pressbert eval --tasks nsmc-sample       # as python eval/run_all.py --tasks nsmc-sample
    pressbert doctor                         # what is installed, what runs here, where files lie

Every verb has the parser of its module, which calls itself what was typed; `pressbert VERB --help` shows it.
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from typing import NoReturn

from apps.completion import candidates
from corpora.foundation.command import EXIT_DONE, run_command, typed_as
from corpora.foundation.errors import UsageError, suggest
from corpora.foundation.files import package_path


@dataclass(frozen=True)
class Verb:
    """What a verb runs."""

    module: str
    """Its `main` takes the arguments after the verb."""
    about: str
    """One line for `pressbert --help`."""


VERBS: Mapping[str, Verb] = {
    "summarize": Verb("apps.summarize", "summarize articles"),
    "stories": Verb("apps.clustering", "group the articles of a day into stories"),
    "duplicates": Verb("apps.duplicates", "find articles that print the same text"),
    "classify": Verb("apps.classify", "label texts"),
    "moderate": Verb("downstream.moderate", "find hateful and offensive comments, and soften them"),
    "desk": Verb("apps.desk", "ask all tools about a draft"),
    "proofread": Verb("downstream.proofread.__main__", "find errors in texts, and correct them"),
    "awkward": Verb("downstream.awkward.__main__", "find awkward wording"),
    "complete": Verb("downstream.complete.__main__", "complete what is being written"),
    "embed": Verb("downstream.embed", "encode texts as vectors, train and score embedders"),
    "headline": Verb("downstream.headline", "write headlines, train and score a model for them"),
    "serve": Verb("apps.serve", "serve all of these over HTTP"),
    "demo": Verb("streamlit", "open the demo in a browser"),
    "corpus": Verb("corpora.build", "build a cleaned corpus from raw files"),
    "vocab": Verb("pretraining.vocab", "train a WordPiece vocabulary"),
    "pretrain": Verb("pretraining.run", "pretrain a BERT by a recipe"),
    "finetune": Verb("downstream.finetune", "fine-tune an encoder on a task"),
    "grid": Verb("downstream.grid", "search the settings of a fine-tuning"),
    "convert": Verb("downstream.encoders", "convert pickled weights to safetensors"),
    "runtime": Verb("downstream.runtime", "find the fastest backend for a fine-tuned model"),
    "distill": Verb("downstream.distill", "distill a fine-tuned model into a smaller one"),
    "publish": Verb("downstream.publish", "check a model folder, and upload it to the Hugging Face Hub"),
    "eval": Verb("eval.run_all", "compare models on tasks, and write the leaderboard"),
    "study": Verb("eval.study", "run a controlled experiment"),
    "contamination": Verb("eval.contamination", "find test examples that occur in training text"),
    "doctor": Verb("apps.doctor", "show what is installed, what runs here, and where files lie"),
    "completion": Verb("apps.completion", "print the script with which a shell completes pressbert"),
}


def help_text() -> str:
    """Return what `pressbert --help` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.about}" for name, verb in VERBS.items())
    return f"usage: pressbert VERB …\n\n{verbs}\n\npressbert VERB --help shows the options of a verb.\n"


def main(argv: list[str] | None = None) -> int:
    """Run a verb.

    Raises:
        UsageError: there is no such verb, or the demo is not installed.
    """
    verb, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb in {"-h", "--help"}:
        sys.stdout.write(help_text())
        return EXIT_DONE
    if verb == "--version":
        sys.stdout.write(f"pressbert {metadata.version('pressbert')}\n")
        return EXIT_DONE
    if verb == "--complete":
        words = candidates(rest, {name: runnable(entry.module) for name, entry in VERBS.items()})
        sys.stdout.write("".join(f"{word}\n" for word in words))
        return EXIT_DONE
    if verb not in VERBS:
        raise UsageError("pressbert", f"unknown verb '{verb}'", suggest(verb, VERBS))
    if verb == "demo":
        return _run_demo(rest)
    module = VERBS[verb].module.removesuffix(".__main__")
    run_module: Callable[[list[str]], int] = importlib.import_module(runnable(VERBS[verb].module)).main
    with typed_as(f"pressbert {verb}", f"python -m {module}", f"{module.replace('.', '/')}.py"):
        return run_module(rest)


def runnable(module: str) -> str:
    """Return the module that has the `main`: of a package its `__main__`."""
    spec = util.find_spec(module)
    return f"{module}.__main__" if spec is not None and spec.submodule_search_locations is not None else module


def _run_demo(arguments: list[str]) -> int:
    """Replace this process by Streamlit, which starts scripts by their path."""
    if util.find_spec("streamlit") is None:
        raise UsageError("pressbert demo", "streamlit is not installed", "pip install 'pressbert[demo]'")
    path = str(package_path("apps", "demo.py"))
    os.execv(sys.executable, [sys.executable, "-m", "streamlit", "run", path, *arguments])


def run() -> NoReturn:
    """Run as a process: the entry point of `[project.scripts]`."""
    run_command(main)


if __name__ == "__main__":
    run()
