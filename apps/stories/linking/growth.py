"""Whether a story takes new titles, by the same levels as when stories are found."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from apps.stories.grouping import Labels
from apps.stories.linking.groups import LARGEST_LOG_ODDS, Levels, Profiles, joined
from apps.stories.linking.pairs import PairFeatures


class Judge:
    """Compares new titles with the titles of stories."""

    def __init__(self, stories: Mapping[str, Sequence[str]], new: Sequence[str], levels: Levels) -> None:
        """Prepare the titles of STORIES, by id, one or more each, and NEW titles."""
        texts = sorted({*new, *(text for titles in stories.values() for text in titles)})
        self._position = {text: number for number, text in enumerate(texts)}
        self._features = PairFeatures(texts)
        self._stories = {story: self._numbers(titles) for story, titles in stories.items()}
        self._levels = levels

    def _numbers(self, titles: Sequence[str]) -> NDArray[np.int64]:
        return np.array(sorted({self._position[title] for title in titles}), np.int64)

    def takes_each(self, stories: Sequence[str], titles: Sequence[str]) -> NDArray[np.bool_]:
        """Return (N,): whether each of N titles belongs to the story beside it."""
        if not titles:
            return np.zeros(0, bool)
        numbers = {story: number for number, story in enumerate(dict.fromkeys(stories))}
        groups = np.array([numbers[story] for story in stories], np.int64)
        new = np.array([self._position[title] for title in titles], np.int64)
        members = [self._stories[story] for story in stories]
        rows, second = _pairs(members)
        odds = np.clip(self._features.log_odds_of(new[rows], second), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        mean = np.bincount(rows, odds, len(new)) / [len(some) for some in members]
        is_member = np.bincount(rows, new[rows] == second, len(new)) > 0
        profiles = Profiles.of_members(self._features, *_pairs([self._stories[story] for story in numbers]))
        similarities = profiles.similarity_of(self._features, new, groups)
        taken: NDArray[np.bool_] = is_member | (mean >= self._levels.log_odds) | (similarities >= self._levels.attach)
        return taken

    def takes(self, story: str, titles: Sequence[str]) -> bool:
        """Whether TITLES, one or a group on one event, belong to a story."""
        members = self._stories[story]
        new = np.setdiff1d(self._numbers(titles), members)
        if len(new) < 2:
            others = [title for title in titles if self._position[title] in new]
            return bool(self.takes_each([story] * len(others), others).all())
        odds = np.clip(self._features.log_odds(new, members), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
        if odds.mean() >= self._levels.log_odds:
            return True
        labels = np.full(self._features.size, -1)
        labels[members] = 0
        labels[new] = 1
        return bool(joined(self._features, labels, self._levels)[new[0]] == 0)


def _pairs(members: Sequence[NDArray[np.int64]]) -> tuple[Labels, Labels]:
    """Return the number of the group of each member, and the member, group by group."""
    return np.repeat(np.arange(len(members)), [len(some) for some in members]), np.concatenate(members)
