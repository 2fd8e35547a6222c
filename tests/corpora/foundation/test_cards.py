"""Model cards come out of a template, with the YAML head that hubs read, and no name may lack its value."""

from collections.abc import Callable
from pathlib import Path

import jinja2
import pytest
from huggingface_hub import ModelCard, ModelCardData

from corpora.foundation.cards import render_card

Write = Callable[[str, str], Path]


def test_a_card_is_its_head_and_its_template(write: Write) -> None:
    template = write("cards/card.md", "# {{ title }}\n\n{% for name in names %}\n- {{ name }}\n{% endfor %}\n")
    head = ModelCardData(language="ko", license="cc0-1.0")
    card = ModelCard(render_card(template, head, title="A < B", names=["가", "나"]))
    assert card.data.license == "cc0-1.0"
    assert card.text.strip() == "# A < B\n\n- 가\n- 나"


def test_a_name_without_a_value_is_an_error(write: Write) -> None:
    with pytest.raises(jinja2.UndefinedError, match="title"):
        render_card(write("card.md", "# {{ title }}\n"))
