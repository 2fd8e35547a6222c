"""Whether a story takes new titles, by the same levels as when stories are found."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from apps.stories.linking.groups import LARGEST_LOG_ODDS, Levels, attached, joined
from apps.stories.linking.pairs import PairFeatures


class Judge:
    """Compares new titles with the titles of stories."""

    def __init__(self, stories: Mapping[str, Sequence[str]], new: Sequence[str], levels: Levels) -> None:
        """Prepare the titles of STORIES, by id, and NEW titles."""
        texts = sorted({*new, *(text for titles in stories.values() for text in titles)})
        self._position = {text: number for number, text in enumerate(texts)}
        self._features = PairFeatures(texts)
        self._stories = {story: self._numbers(titles) for story, titles in stories.items()}
        self._levels = levels

    def _numbers(self, titles: Sequence[str]) -> NDArray[np.int64]:
        return np.array(sorted({self._position[title] for title in titles}), np.int64)

    def takes(self, story: str, titles: Sequence[str]) -> bool:
        """Whether TITLES, one or a group on one event, belong to a story."""
        members = self._stories[story]
        new = np.setdiff1d(self._numbers(titles), members)
        if not len(new) or not len(members):
            return not len(new)
        odds = np.clip(self._features.log_odds(new, members), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        if odds.mean() >= self._levels.log_odds:
            return True
        labels = np.full(self._features.size, -1)
        labels[members] = 0
        if len(new) == 1:
            return bool(attached(self._features, labels, new, self._levels.attach)[0] == 0)
        labels[new] = 1
        return bool(joined(self._features, labels, self._levels)[new[0]] == 0)
