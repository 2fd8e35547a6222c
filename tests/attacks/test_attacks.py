"""Every attack is refused in one line: no code of it runs, nothing is written elsewhere, quickly, in little memory."""

import re
from pathlib import Path

import pytest

from apps.clustering import CharNgrams, Stories
from tests.attacks.archives import archive_attacks
from tests.attacks.attack import Attack, files_below, run
from tests.attacks.files import article_attacks, board_attacks
from tests.attacks.models import MARKER, build_model, model_attacks
from tests.attacks.states import checkpoint_attacks, run_attacks, state_attacks
from tests.attacks.texts import text_attacks

STEERING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202e]")
"""What a terminal would obey; a progress bar returns to the beginning of its line."""


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> list[Attack]:
    base = build_model(tmp_path_factory.mktemp("base") / "model")
    kept = tmp_path_factory.mktemp("kept")
    titles = [f"{town} 의회 예산 {k * 10}억 의결" for town in ("벼리시", "물빛시", "새말군") for k in range(4)]
    Stories.fit(titles, embedder=CharNgrams()).save(kept)
    return [
        *model_attacks(base),
        *article_attacks(),
        *archive_attacks(),
        *text_attacks(),
        *board_attacks(),
        *state_attacks(kept),
        *run_attacks(),
        *checkpoint_attacks(),
    ]


def test_every_attack_is_refused(
    attacks: list[Attack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    marker = tmp_path / "marker"
    monkeypatch.setenv(MARKER, str(marker))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert len({attack.name for attack in attacks}) == len(attacks) >= 45
    for number, attack in enumerate(attacks):
        folder = tmp_path / f"{number:03}"
        folder.mkdir()
        path = attack.make(folder)
        for entry in attack.entries:
            name = f"{attack.name}, {getattr(entry, '__name__', entry)}"
            with subtests.test(name):
                out = tmp_path / f"out-{number:03}"
                before = files_below(tmp_path) - files_below(out)
                outcome = run(attack, entry, path, out)
                assert outcome.code in attack.codes, (name, outcome)
                if outcome.code == 2:
                    # `--validate` prints its findings.
                    assert len(outcome.message.splitlines()) <= 1, (name, outcome)
                    assert attack.says in outcome.message, (name, outcome)
                assert "Traceback" not in outcome.message, (name, outcome)
                assert not STEERING.search(outcome.message), (name, outcome)
                assert not marker.exists(), name
                assert files_below(tmp_path) - files_below(out) == before, name
                assert outcome.elapsed_s < attack.max_s, (name, outcome)
                assert outcome.grown_mb < attack.max_mb, (name, outcome)
