"""KLUE-WoS: dialogues with a state for every user turn, KLUE's scores, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corpora.foundation.errors import UsageError
from downstream.families.dialogue_state import joint_goal_accuracy, slot_f1
from downstream.finetune import TaskData, finetune
from downstream.task import Split, get_task

DIALOGUES = [
    {
        "guid": "wos-v1_dev_00000",
        "domains": ["식당"],
        "dialogue": [
            {"role": "user", "text": "한식당\n찾아요", "state": ["식당-종류-한식당"]},
            {"role": "sys", "text": "어느 지역인가요?"},
            {"role": "user", "text": "서울 중앙", "state": ["식당-지역-서울 중앙", "식당-종류-한식당"]},
        ],
    },
    {"guid": "wos-v1_dev_00001", "domains": [], "dialogue": [{"role": "user", "text": "안녕", "state": []}]},
]
FILE = json.dumps(DIALOGUES, ensure_ascii=False)


def test_a_dialogue_is_read_with_the_state_of_each_user_turn(read_small: Callable[[str, str], Split]) -> None:
    one, two = read_small("klue-wos", FILE).examples
    assert one.text == "user: 한식당 찾아요\nsys: 어느 지역인가요?\nuser: 서울 중앙"
    assert json.loads(one.label) == [["식당-종류-한식당"], ["식당-종류-한식당", "식당-지역-서울 중앙"]]
    assert (two.id, json.loads(two.label)) == ("wos-v1_dev_00001", [[]])


def test_a_damaged_file_is_refused(refuses: Callable[..., None], subtests: pytest.Subtests) -> None:
    cases = [
        ('"role": "sys"', '"role": "bot"', "role 'bot' is neither user nor sys"),
        ('"state": []', '"states": []', "missing column 'state'"),
        ('"식당-종류-한식당"', '"식당-종류"', "'식당-종류' is not DOMAIN-SLOT-VALUE"),
        ('"식당-종류-한식당"', "3", "a slot of a state is no text"),
        ('"role": "user", "text": "안녕"', '"role": "sys", "text": "안녕"', "0 states for 0 user turns"),
        ("dev_00001", "dev_00000", "duplicate id"),
    ]
    for old, new, what in cases:
        with subtests.test(what=what):
            refuses("klue-wos", FILE, old, new, what)


def test_scores_are_means_over_turns_as_in_the_official_script() -> None:
    golds = [json.dumps([["a-b-c"], ["a-b-c", "a-d-e"]]), json.dumps([[]])]
    predictions = [json.dumps([["a-b-c"], ["a-b-c", "a-d-x"]]), json.dumps([["a-b-c"]])]
    assert joint_goal_accuracy(predictions, golds) == pytest.approx(1 / 3)
    assert slot_f1(predictions, golds) == pytest.approx((1 + 0.5 + 0) / 3)
    assert (joint_goal_accuracy(golds, golds), slot_f1(golds, golds)) == (1.0, 1.0)
    with pytest.raises(ValueError, match="dialogue 1: 1 states for 2 turns"):
        slot_f1([json.dumps([[]])], golds[:1])


def test_an_encoder_is_refused(
    read_small: Callable[[str, str], Split], standins: dict[str, Path], tmp_path: Path
) -> None:
    split = read_small("klue-wos", FILE)
    with pytest.raises(UsageError, match="cannot be fine-tuned on dialogue states"):
        finetune(get_task("klue-wos"), standins["klue-bert"], out=tmp_path / "m", data=TaskData(split, split))
