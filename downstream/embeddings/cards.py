"""The model card of a trained embedder."""

import json
from collections.abc import Mapping
from typing import Any

from corpora.foundation.cards import render_card
from corpora.foundation.files import package_path
from downstream.embeddings.similarity import EvaluationSuite

TEMPLATE = package_path("downstream", "templates", "card_sentence_embedder.md")


def embedder_card(title: str, manifest: Mapping[str, Any], suite: EvaluationSuite) -> str:
    """Return the README.md of a trained embedder, with the YAML that model hubs read.

    Args:
        title: name of the model.
        manifest: as `train_embedder` returns it.
        suite: tasks that it was scored on.
    """
    from huggingface_hub import EvalResult, ModelCardData

    tasks = {name: task for name, (task, _) in suite.tasks.items()}
    sources = [source for record in manifest["stages"] for source in record.get("sources", [])]
    found = {source["licence"] for source in sources}
    licences = ", ".join(licence or "not stated" for licence in sorted(found))
    licence = manifest["recipe"]["licence"]
    terms = {"license": licence.lower()} if licence else {"license": "other", "license_name": f"data: {licences}"}
    head = ModelCardData(
        language="ko",
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction"],
        model_name=title,
        eval_results=[
            EvalResult(
                task_type="sentence-similarity",
                dataset_type=name,
                dataset_name=task.title,
                dataset_split=task.eval_split,
                metric_type=f"cosine_{key}",
                metric_value=round(value, 6),
            )
            for name, task in tasks.items()
            for key, value in manifest["scores"][name].items()
            if value is not None
        ],
        **terms,
    )
    start, *stages = manifest["stages"]
    return render_card(
        TEMPLATE,
        head,
        title=title,
        manifest=manifest,
        tasks=tasks,
        columns={
            "before": start["scores"],
            **{f"after {number}": record["scores"] for number, record in enumerate(stages[:-1], start=1)},
            "**this model**": manifest["scores"],
            "TF-IDF": manifest["baselines"]["tfidf"],
            "Jaccard": manifest["baselines"]["jaccard"],
        },
        licences=licences,
        attributions=sorted({source["attribution"] for source in sources if source.get("attribution")}),
        recipe=json.dumps(manifest["recipe"], ensure_ascii=False, indent=1),
    )
