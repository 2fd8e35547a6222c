"""Score headlines on held-out pairs: ROUGE-L of Kiwi's morphemes, beside the best sentence of the lead.

The headline of a text is the first one that the check accepts, or the sentence of the lead if there is none. The
difference to the sentences is tested by the paired randomization test over texts, and has a bootstrap interval. The
beginning of a sentence, as long as the headline, shows what is due to length alone.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from downstream.headlines.facts import facts_of
from downstream.headlines.pairs import Pair
from downstream.headlines.writer import HeadlineWriter
from downstream.metrics import FloatArray, bootstrap_ci95
from downstream.summaries.evaluation import MEAN, paired_p
from downstream.summaries.rouge import morphemes, rouge_l


@dataclass(frozen=True)
class HeadlineScores:
    """Scores of N texts."""

    headlines: tuple[str, ...]
    """The headlines, N."""
    seconds: FloatArray
    """To propose the candidates of each text, (N,)."""
    written: FloatArray
    """ROUGE-L of the headlines, (N,)."""
    extractive: FloatArray
    """Of the sentences of the lead, (N,)."""
    beginning: FloatArray
    """Of as many morphemes as the headlines have, from the beginning of those sentences, (N,)."""
    unchecked: FloatArray
    """Of the best candidates, whatever they invent, (N,)."""
    num_invented: int
    """Numbers and names in the headlines that the texts do not have."""
    num_invented_unchecked: int
    """The same in the best candidates."""
    num_refused: int
    """Candidates that were refused."""
    num_candidates: int
    num_without: int
    """Texts for which every candidate was refused."""

    @classmethod
    def join(cls, parts: Sequence["HeadlineScores"]) -> "HeadlineScores":
        """Return the scores of the texts of all parts, in their order."""

        def joined(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return np.concatenate(values) if isinstance(values[0], np.ndarray) else sum(values[1:], values[0])

        return cls(**{field.name: joined(field.name) for field in fields(cls)})

    def as_json(self) -> dict[str, Any]:
        """Return means as fractions, the difference with its interval and p-value, and counts."""
        difference = self.written - self.extractive
        interval = bootstrap_ci95(MEAN, [difference[:, None]])
        return {
            "num_texts": len(difference),
            "rouge_l": {
                "written": round(float(self.written.mean()), 6),
                "extractive": round(float(self.extractive.mean()), 6),
                "beginning": round(float(self.beginning.mean()), 6),
                "unchecked": round(float(self.unchecked.mean()), 6),
            },
            "difference": round(float(difference.mean()), 6),
            "difference_ci95": [round(bound, 6) for bound in interval] if interval else None,
            "p": paired_p(self.written, self.extractive),
            "num_invented": self.num_invented,
            "num_invented_unchecked": self.num_invented_unchecked,
            "num_refused": self.num_refused,
            "num_candidates": self.num_candidates,
            "num_without": self.num_without,
        }


def evaluate_headlines(writer: HeadlineWriter, pairs: Sequence[Pair], *, num_beams: int) -> HeadlineScores:
    """Write and score the headlines of held-out pairs."""
    headlines: list[str] = []
    rows: list[tuple[float, ...]] = []
    counts = np.zeros(5, np.int64)
    for pair in pairs:
        started = time.perf_counter()
        candidates = writer.candidates(pair.body, num_beams)
        seconds = time.perf_counter() - started
        accepted = [candidate.text for candidate in candidates if not candidate.invented]
        sentence = writer.extractive(pair.body)
        fallback = sentence.text if sentence else ""
        headline = accepted[0] if accepted else fallback
        first = candidates[0].text if candidates else fallback
        gold = morphemes(pair.title)
        ours, sentences, best = morphemes(headline), morphemes(fallback), morphemes(first)
        headlines.append(headline)
        rouge = (rouge_l(each, gold).f1 for each in (ours, sentences, sentences[: len(ours)], best))
        rows.append((seconds, *rouge))
        facts = facts_of(pair.body)
        refused = len(candidates) - len(accepted)
        counts += [len(facts.invented(headline)), len(facts.invented(first)), refused, len(candidates), not accepted]
    return HeadlineScores(tuple(headlines), *np.array(rows).T, *(int(count) for count in counts))
