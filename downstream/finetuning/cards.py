"""The model card of a fine-tuned folder."""

import json

from corpora.foundation.cards import render_card
from corpora.foundation.files import package_path
from downstream.finetuning.method import TrainingMethod
from downstream.finetuning.result import Result
from downstream.task import Task

PIPELINES = {
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
}
"""Class that loads the model → name of the task on model hubs."""


def render_model_card(task: Task, result: Result, method: TrainingMethod, max_length: int | None) -> str:
    """Return the README.md of a fine-tuned folder, with the YAML that model hubs read.

    Args:
        task: that the model was fine-tuned on.
        result: of the evaluation.
        method: of the training.
        max_length: length in tokens at which inputs are cut, if known.
    """
    from huggingface_hub import EvalResult, ModelCardData

    pipeline = PIPELINES[task.family.auto_class]
    head = ModelCardData(
        language="ko",
        library_name="transformers",
        pipeline_tag=pipeline,
        # Weights learned from data carry at least its licence, in addition to the encoder's.
        license="other",
        license_name=f"data: {task.licence}; encoder: see its own card",
        model_name=f"{result.model} on {task.title}",
        eval_results=[
            EvalResult(
                task_type=pipeline,
                dataset_type=task.name,
                dataset_name=task.title,
                dataset_split=result.split,
                metric_type=key,
                metric_value=round(value, 6),
            )
            for key, value in result.metrics.items()
            if value is not None
        ],
    )
    return render_card(
        package_path("downstream", "templates", "card_finetuned.md"),
        head,
        result=result,
        task=task,
        method=method,
        max_length=max_length,
        settings=json.dumps(result.recipe["finetune"]),
        command=method.command.format(task=task.name),
    )
