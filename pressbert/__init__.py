"""The faces of the suite under one name; what is imported is loaded at its first use.

    from pressbert import summarize, cluster, classify, embed

`FACES` says where each lives. The packages `corpora`, `pretraining`, `downstream`, `eval` and `apps` stay importable.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apps.clustering import ClusteringConfig as ClusteringConfig
    from apps.clustering import cluster as cluster
    from apps.clustering import find_duplicates as find_duplicates
    from corpora.documents import read_documents as read_documents
    from corpora.sentences import split_sentences as split_sentences
    from downstream.classify import Classifier as Classifier
    from downstream.classify import classify as classify
    from downstream.complete import complete as complete
    from downstream.embed import Embedder as Embedder
    from downstream.embed import encode as embed  # noqa: F401
    from downstream.fill_mask import MaskFiller as MaskFiller
    from downstream.finetune import finetune as finetune
    from downstream.headline import headline as headline
    from downstream.moderate import moderate as moderate
    from downstream.moderate import soften as soften
    from downstream.proofread import proofread as proofread
    from downstream.summarize import Summarizer as Summarizer
    from downstream.summarize import summarize as summarize

FACES = {
    "summarize": "downstream.summarize:summarize",
    "Summarizer": "downstream.summarize:Summarizer",
    "cluster": "apps.clustering:cluster",
    "ClusteringConfig": "apps.clustering:ClusteringConfig",
    "find_duplicates": "apps.clustering:find_duplicates",
    "classify": "downstream.classify:classify",
    "Classifier": "downstream.classify:Classifier",
    "complete": "downstream.complete:complete",
    "embed": "downstream.embed:encode",
    "Embedder": "downstream.embed:Embedder",
    "MaskFiller": "downstream.fill_mask:MaskFiller",
    "finetune": "downstream.finetune:finetune",
    "moderate": "downstream.moderate:moderate",
    "soften": "downstream.moderate:soften",
    "headline": "downstream.headline:headline",
    "proofread": "downstream.proofread:proofread",
    "read_documents": "corpora.documents:read_documents",
    "split_sentences": "corpora.sentences:split_sentences",
}
"""Name → where it is defined."""

__all__ = [*FACES, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a face, or the version of the installed distribution, at its first use."""
    if name == "__version__":
        return metadata.version("pressbert")
    if name not in FACES:
        raise AttributeError(f"module 'pressbert' has no attribute '{name}'")
    module, _, attribute = FACES[name].partition(":")
    found = globals()[name] = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    """List the faces for completion in an interpreter."""
    return sorted({*globals(), *__all__})
