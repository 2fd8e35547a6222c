"""The demo: everything the suite does, for people who have never seen a terminal.

    make demo
    streamlit run apps/demo.py

It listens on this machine alone, tells nobody that it is used, and keeps no text. Further models are found in the
folders of `PRESSBERT_MODELS`, leaderboards in `PRESSBERT_REPORTS`; see docs/demo.md.
"""

import os
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

# Small models on a busy machine: threads that wait by spinning slow each other down tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The tokenizers' own threads do not survive a fork, and warn on every one.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not __package__:
    # Run by path, Python puts apps/ on the path and not the root that holds the five packages.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import streamlit as st

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
    """Of its module in `apps.demo_pages`, of its texts, and in the address, where the first page has none."""
    icon: str
    kind: Kind | None
    """Of the models it works with."""


PAGES = (
    DemoPage("summary", ":material/summarize:", "summarizer"),
    DemoPage("stories", ":material/newspaper:", "embedder"),
    DemoPage("comments", ":material/forum:", "classifier"),
    DemoPage("answers", ":material/quiz:", "reader"),
    DemoPage("blanks", ":material/edit_note:", "encoder"),
    DemoPage("leaderboard", ":material/leaderboard:", None),
)


def draw(first: str = PAGES[0].name) -> None:
    """Draw the page that is asked for.

    Args:
        first: name of the page that is shown when the address names none.
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
    choice = choose_model(texts, page.kind) if page.kind is not None else None
    # Imported when it is looked at: the first page is not to wait for what the others need.
    import_module(f"apps.demo_pages.{page.name}").show(PageContext(texts, models, choice))
    with st.sidebar:
        # Last, so that what the page has just loaded is told.
        show_loaded(texts, models)


def browser_texts(texts: Texts) -> str:
    """Return CSS that says in the visitor's language what Streamlit's own file field says in English."""
    drop, limit, refused = (
        texts(key, limit=MAX_UPLOAD_MB) for key in ("upload.drop", "upload.limit", "upload.refused")
    )
    return (
        f'[data-testid="stFileUploaderDropzone"] {{ --pb-drop: "{drop}"; --pb-limit: "{limit}"; }}'
        f'[data-testid="stFileUploader"] {{ --pb-refused: "{refused}"; }}'
    )


if __name__ == "__main__":
    draw()
