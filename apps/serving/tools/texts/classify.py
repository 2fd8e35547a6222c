"""Labels and scores of texts or pairs, and the words that decided: `downstream.classify.Classifier`."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, create_model
from pydantic_core import to_json

from apps.serving.schemas import MAX_CHARACTERS, MAX_ITEMS, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool, UnsuitableError, describe_field
from corpora.characters import nfc
from corpora.foundation.errors import UsageError
from downstream.classify import Classifier, WordWeight
from downstream.encoders.hub import bundled_or_folder
from downstream.families.classification import Classification, Regression
from downstream.runtimes.predictor import Predictor
from downstream.task import TextExample

TEXTS = describe_field("texts")
LABEL = describe_field("label")


class Pair(Strict):
    """Two texts, for a model that compares them."""

    text: Text = Field(examples=["시는 다음 달부터 버스 노선을 바꾼다."])
    pair: Text = Field(examples=["버스 노선은 그대로다."])


class ClassifyRequest(Strict):
    """Texts or pairs to classify."""

    texts: list[Text | Pair] = Field(
        min_length=1, max_length=MAX_ITEMS, examples=[["배우들 연기가 정말 좋았다"]], description=TEXTS
    )
    label: str | None = Field(default=None, max_length=MAX_CHARACTERS, description=LABEL)


class ClassifyTextsRequest(Strict):
    """Texts to classify."""

    texts: list[Text] = Field(
        min_length=1, max_length=MAX_ITEMS, examples=[["배우들 연기가 정말 좋았다"]], description=TEXTS
    )
    label: str | None = Field(default=None, max_length=MAX_CHARACTERS, description=LABEL)


class ClassifyPairsRequest(Strict):
    """Pairs to classify."""

    texts: list[Pair] = Field(min_length=1, max_length=MAX_ITEMS, description=TEXTS)


class Label(Strict):
    """The most probable label, and the probabilities of all."""

    label: str
    scores: dict[str, float]
    words: list[WordWeight] | None = Field(
        default=None,
        description="label을 준 요청에만: 그 라벨을 이끈 낱말과 무게. start와 end는 코드 포인트로 센 자리다.",
    )


class Score(Strict):
    """A score on the scale that the model was trained on."""

    score: float


class ClassifyResponse(Strict):
    """One result for each text, in their order."""

    model: str
    results: list[Label | Score]


def open_classifier(source: str, runtime: str) -> Service:
    """Serve a model fine-tuned on texts or pairs."""
    folder = bundled_or_folder(source, "classifier")
    predictor = Predictor.load(folder, runtime)
    finetuned = predictor.finetuned
    family, takes_pairs = finetuned.family, finetuned.task.takes_pairs
    if not isinstance(family, Classification | Regression):
        raise UsageError("--classify", f"{source} is a model for {finetuned.task.title}", "give a classifier's folder")
    is_scale = isinstance(family, Regression)
    labels = () if is_scale else tuple(getattr(family, "labels", ()))
    classifier = None if is_scale or takes_pairs else Classifier(predictor)

    def items(request: Any) -> list[TextItem]:
        if request.label is not None and (classifier is None or request.label not in labels):
            known = ", ".join(labels) if classifier is not None else "–"
            raise UnsuitableError("label", "label", labels=known)
        given = [(t.text, t.pair) if isinstance(t, Pair) else (t,) for t in request.texts]
        for k, texts in enumerate(given):
            if takes_pairs != (len(texts) == 2):
                raise UnsuitableError("pairs" if takes_pairs else "single", f"texts.{k}", task=finetuned.task.title)
        if request.label is None:
            return [TextItem(tuple(map(nfc, texts))) for texts in given]
        # The offsets of words are those of the text as it was sent.
        return [TextItem(texts, json.dumps(request.label)) for texts in given]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        examples = [
            TextExample("", nfc(item.texts[0]), nfc(item.texts[1]) if len(item.texts) == 2 else None, "")
            for item in batch
        ]
        rows, _ = predictor.outputs(examples)
        if is_scale:
            return [to_json({"score": float(row[0])}) for row in rows]
        label = json.loads(batch[0].settings or "null")
        found = [labelled(labels, row) for row in rows]
        if label is not None and classifier is not None:
            for item, row in zip(batch, found, strict=True):
                row["words"] = classifier.weigh(item.texts[0], label)
        return [to_json(row) for row in found]

    return Service(
        endpoint=TOOL.name,
        model=folder.resolve().name,
        digest=predictor.runtime.network.digest,
        runtime=predictor.runtime.name,
        about={
            "task": finetuned.task.name,
            "labels": ", ".join(labels),
            "max_length": f"{finetuned.max_length} tokens; the rest of a text is ignored",
        },
        request=ClassifyRequest,
        response=ClassifyResponse,
        sample=TextItem((SAMPLE,) * (2 if takes_pairs else 1)),
        items=items,
        compute=compute,
        described=_described(labels, takes_pairs=takes_pairs),
    )


def _described(labels: Sequence[str], *, takes_pairs: bool) -> type[BaseModel]:
    """Return what a model takes: pairs, or texts and one of its labels."""
    if takes_pairs or not labels:
        return ClassifyPairsRequest if takes_pairs else ClassifyTextsRequest
    kind: Any = Literal[tuple(labels)]
    info = Field(default=None, description=LABEL, examples=[labels[-1]])
    return create_model("ClassifyTextsRequest", __base__=ClassifyTextsRequest, label=(kind | None, info))


def labelled(labels: Sequence[str], row: Any) -> dict[str, Any]:
    """Return the label with the largest logit, and the softmax of them all."""
    exponents = np.exp(row.astype(np.float64) - row.max())
    shares = exponents / exponents.sum()
    scores = {label: round(float(share), 6) for label, share in zip(labels, shares, strict=True)}
    return {"label": labels[int(row.argmax())], "scores": scores}


TOOL = Tool(
    name="classify",
    functions=(Classifier.probabilities, Classifier.weigh),
    request=ClassifyRequest,
    response=ClassifyResponse,
    open=open_classifier,
    model="a model fine-tuned on texts or pairs",
    locations={"text": "texts"},
)
