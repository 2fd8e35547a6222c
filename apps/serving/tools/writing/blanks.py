"""Words for a blank: `downstream.fill_mask.MaskFiller.fill`."""

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import (
    Service,
    TextItem,
    Tool,
    UnsuitableError,
    options_json,
    request_model,
)
from downstream.encoders.folder import ModelFolder
from downstream.encoders.hub import bundled_or_folder
from downstream.fill_mask import BLANK, Blank, MaskFiller

REQUEST = request_model(
    "BlanksRequest",
    "Texts with blanks: [MASK], □ or __.",
    [MaskFiller.fill],
    {
        "texts": (list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[["내일은 전국에 [MASK]가 내린다"]])),
        "num_candidates": (int, Field(ge=1, le=1_000)),
    },
    without=["text"],
)


class BlanksResponse(Strict):
    """The blanks of each text, each with its candidates."""

    model: str
    results: list[list[Blank]]


def open_filler(source: str, _runtime: str) -> Service:
    """Serve an encoder that was saved with its masked-LM head; a plain BERT runs in ONNX Runtime, others in torch."""
    folder = bundled_or_folder(source, "encoder")
    filler = MaskFiller.load(folder)

    def items(request: Any) -> list[TextItem]:
        for k, text in enumerate(request.texts):
            if not BLANK.search(text):
                raise UnsuitableError("no_blank", f"texts.{k}")
        settings = options_json(request, "texts")
        return [TextItem((text,), settings) for text in request.texts]

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json(_fill(filler, item)) for item in batch]

    return Service(
        endpoint=TOOL.name,
        model=folder.resolve().name,
        digest=ModelFolder(folder).digest(),
        runtime="onnx-fp32" if ModelFolder(folder).is_bundled else "auto",
        about={"max_length": f"{filler.max_length} tokens", "num_parameters": str(filler.num_parameters)},
        request=REQUEST,
        response=BlanksResponse,
        sample=TextItem(("새 다리가 [MASK].",), "{}"),
        items=items,
        compute=compute,
    )


def _fill(filler: MaskFiller, item: TextItem) -> tuple[Blank, ...]:
    try:
        return filler.fill(item.texts[0], **json.loads(item.settings))
    except ValueError as error:
        if found := re.search(r"has (\d+) tokens and the model reads (\d+)", str(error)):
            raise UnsuitableError("tokens", size=int(found[1]), limit=int(found[2])) from None
        raise


TOOL = Tool(
    name="blanks",
    functions=(MaskFiller.fill,),
    request=REQUEST,
    response=BlanksResponse,
    open=open_filler,
    model="an encoder with its masked-LM head",
    locations={"text": "texts"},
)
