"""The demo: the tools of the suite in a browser.

    make demo
    streamlit run apps/demo.py

It listens on this machine only, collects no usage statistics and stores no text. `PRESSBERT_MODELS` names folders of
further models, `PRESSBERT_REPORTS` the folder of a leaderboard; see docs/demo.md.
"""

import os
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

# With small models on a busy machine, spinning threads slow each other down tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The tokenizers' own threads do not survive a fork, and warn on every one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not __package__:
    # Run by path, Python puts apps/ on the path and not the root that holds the five packages.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import streamlit as st

from apps.demo_pages.comment_models import COMMENT_MODELS
from apps.demo_pages.frame import PageContext, choose_language, choose_model, shared_models, show_loaded
from apps.demo_pages.inputs import MAX_UPLOAD_MB
from corpora.foundation.files import package_path
from corpora.foundation.texts import Texts
from downstream.encoders.folder import Kind

STYLE = package_path("apps", "demo_pages", "style.css")


@dataclass(frozen=True)
class DemoPage:
    """A page of the demo."""

    name: str
    """Name of its module in `apps.demo_pages`, of its texts, and in the address; the first page has none there."""
    icon: str
    kind: Kind | None
    """Kind of its models; None: it needs none."""
    tasks: tuple[str, ...] = ()
    """Tasks whose models are offered first."""


PAGES = (
    DemoPage("summary", ":material/summarize:", "summarizer"),
    DemoPage("stories", ":material/newspaper:", "embedder"),
    DemoPage("comments", ":material/forum:", "classifier", tuple(entry.task for entry in COMMENT_MODELS)),
    DemoPage("answers", ":material/quiz:", "reader"),
    DemoPage("blanks", ":material/edit_note:", "encoder"),
    DemoPage("leaderboard", ":material/leaderboard:", None),
)


def draw(first: str = PAGES[0].name) -> None:
    """Draw the requested page.

    Args:
        first: name of the page that is shown if the address names none.
    """
    st.set_page_config(page_title="PressBERT", page_icon="📰", layout="wide")
    st.html(STYLE)
    texts = choose_language()
    st.html(f"<style>{browser_texts(texts)}</style>")
    pages = [
        st.Page(
            partial(run_page, page, texts),
            title=texts(f"{page.name}.title"),
            icon=page.icon,
            url_path=page.name,
            default=page.name == first,
        )
        for page in PAGES
    ]
    st.navigation(pages).run()


def run_page(page: DemoPage, texts: Texts) -> None:
    """Draw one page with its sidebar."""
    models = shared_models()
    choice = choose_model(texts, page.kind, page.tasks) if page.kind is not None else None
    # Imported on demand: the first page does not wait for the imports of others.
    import_module(f"apps.demo_pages.{page.name}").show(PageContext(texts, models, choice))
    with st.sidebar:
        # Last, so that it lists what the page has just loaded.
        show_loaded(texts, models)


def browser_texts(texts: Texts) -> str:
    """Return CSS that translates Streamlit's file field, which is English only."""
    drop, limit, refused = (
        texts(key, limit=MAX_UPLOAD_MB) for key in ("upload.drop", "upload.limit", "upload.refused")
    )
    return (
        f'[data-testid="stFileUploaderDropzone"] {{ --pb-drop: "{drop}"; --pb-limit: "{limit}"; }}'
        f'[data-testid="stFileUploader"] {{ --pb-refused: "{refused}"; }}'
    )


if __name__ == "__main__":
    draw()
