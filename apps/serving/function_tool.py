"""A tool of the server made of a function of one text, for plug-ins."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, create_model
from pydantic_core import to_json

from apps.serving.schemas import MAX_ITEMS, Strict, Text
from apps.serving.tool import SAMPLE, Service, TextItem, Tool


class FunctionResponse(Strict):
    """What the function returned for each text, in their order."""

    model: str
    results: list[Any]


def function_tool(function: Callable[[str], Any]) -> Tool:
    """Return a tool that calls a function for every text of a request.

    Args:
        function: text → anything that is JSON. Its name gives that of the endpoint, its docstring the description.
    """
    name = function.__name__.replace("_", "-")
    texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_ITEMS, examples=[[SAMPLE]])]
    about = inspect.getdoc(function) or name
    request = create_model(f"{function.__name__}Request", __base__=Strict, __doc__=about, texts=(texts, ...))

    def compute(batch: Sequence[TextItem]) -> list[bytes]:
        return [to_json(function(item.texts[0])) for item in batch]

    def open_function(_source: str, _runtime: str) -> Service:
        return Service(
            endpoint=name,
            model=function.__name__,
            digest="",
            runtime="python",
            about={},
            request=request,
            response=FunctionResponse,
            sample=TextItem((SAMPLE,)),
            items=lambda body: [TextItem((text,)) for text in body.texts],
            compute=compute,
            is_cached=False,
        )

    return Tool(name=name, functions=(), request=request, response=FunctionResponse, open=open_function)
