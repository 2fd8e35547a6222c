"""Find hateful and offensive comments, say which words carry it, and propose a softer wording.

    from downstream.moderate import moderate, soften
    found = moderate("정말 못생긴 놈이 나왔네")
    found.probabilities, found.is_flagged, [(span.text, span.weight) for span in found.spans]
    soften("정말 못생긴 놈이 나왔네")                  # masking, a neutral word, leaving out

    python -m downstream.moderate comments.csv --json
    python -m downstream.moderate train --data ROOT --out FOLDER

A result is advice for an editor: nothing is deleted or published by itself. The threshold is the lowest score that had
the stated precision in cross-validation on the training comments.
"""

from downstream.moderate.model import Moderation, Moderator, WordSpan, bundled_moderator
from downstream.moderate.softening import Edit, Softened, soften_with

__all__ = ["Edit", "Moderation", "Moderator", "Softened", "WordSpan", "moderate", "soften"]


def moderate(text: str, headline: str | None = None, *, precision: float = 0.8) -> Moderation:
    """Judge a comment with the bundled model.

    Args:
        text: the comment.
        headline: of the article under which it stands.
        precision: that flagged comments had in cross-validation; one of the model's `thresholds`.

    Raises:
        ValueError: the text is no string, or the model has no threshold for the precision.
    """
    return bundled_moderator().moderate(text, headline, precision=precision)


def soften(text: str, headline: str | None = None, *, precision: float = 0.8) -> tuple[Softened, ...]:
    """Propose softer wordings of a comment that is flagged; no proposals for others.

    Args:
        text: the comment.
        headline: of the article under which it stands.
        precision: see `moderate`.

    Returns:
        A proposal by masking, one with neutral words, one that leaves words out, each with its score.

    Raises:
        ValueError: as `moderate`.
    """
    return soften_with(bundled_moderator(), text, headline, precision=precision)
