"""Train the models that come with the package, from open text: `python -m downstream.bundle --data ROOT`.

    downstream/bundled/
      recipe.toml     everything that decides the models except the text itself
      encoder/        a pretrained BERT with its masked-LM head
      classifier/     the encoder fine-tuned on film reviews
      embedder/       the encoder trained to embed sentences
      MANIFEST.json   digests, sources with licences, seeds, tokens, times, machine, scores

Each is a plain folder of transformers or sentence-transformers. Weights are stored in half precision and used in single
precision. Finished steps are kept under a work folder, and an interrupted step is resumed. Scores are computed from the
stored weights. `--continue` starts from the models that are bundled already: finished phases of the encoder are not
trained again, and a model whose recipe and encoder are unchanged is kept. Stages that are added to those of the
embedder continue from the bundled one. With `--models` all others are kept as well; if the encoder changed, the
manifest and their cards say so, and the next call trains them again.
"""

import json
import sys
from pathlib import Path

from corpora.foundation.command import EXIT_DONE, ArgumentParser, run_command
from corpora.official import data_root
from downstream.bundling.publishing import MODELS
from downstream.bundling.recipe import RECIPE, read_bundle_recipe
from downstream.bundling.steps import STEPS, Bundle
from downstream.encoders.folder import BUNDLED


def main(argv: list[str] | None = None) -> int:
    """Train the bundled models from the command line; prints their scores as JSON."""
    parser = ArgumentParser("python -m downstream.bundle", "Train the models that come with the package.")
    parser.add_argument("--recipe", type=Path, default=BUNDLED / RECIPE)
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--work", type=Path, default=Path("runs/bundled"), help="folder for all that is not bundled")
    parser.add_argument("--out", type=Path, default=BUNDLED, help="folder of the bundled models")
    parser.add_argument("--until", choices=STEPS, default=STEPS[-1], help="stop after this step; nothing is bundled")
    parser.add_argument("--continue", dest="resume", action="store_true", help="start from the models bundled already")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="train only these, with --continue")
    parser.add_argument("--workers", type=int, default=2, help="processes that prepare text")
    parser.add_argument("--teacher", type=Path, help="folder of the encoder whose sentence vectors are learnt from")
    arguments = parser.parse(argv)
    bundle = Bundle(
        read_bundle_recipe(arguments.recipe),
        root=data_root(arguments.data),
        work=arguments.work,
        out=arguments.out,
        resume=arguments.resume,
        models=arguments.models,
        num_workers=arguments.workers,
        teacher=arguments.teacher,
    )
    bundle.make(arguments.until)
    if arguments.until == STEPS[-1]:
        manifest = bundle.publish()
        scores = {name: manifest[name] for name in ("classifier", "embedder")}
        sys.stdout.write(json.dumps({"encoder": manifest["encoder"]["held_out"]} | scores, ensure_ascii=False) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    run_command(main)
