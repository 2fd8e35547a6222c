"""Model cards: a jinja template headed by the YAML that model hubs read."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData


def render_card(template: Path, head: "ModelCardData | None" = None, **values: object) -> str:
    """Return a model card.

    Args:
        template: jinja template of the Markdown; it can include others of its folder.
        head: the YAML front matter; None: the template holds it.
        values: what the template names. A name without a value is an error.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, of our own figures
    )
    body = environment.get_template(template.name).render(values)
    return body if head is None else f"---\n{head.to_yaml()}\n---\n\n{body}"
