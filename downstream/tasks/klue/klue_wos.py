"""Wizard of Seoul, KLUE-DST: what a tourist wants by each turn of a dialogue (Park et al. 2021, KLUE v1.1)."""

import json
from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.official import OfficialFile
from downstream.families.dialogue_state import USER, DialogueState, joint_goal_accuracy, slot_f1
from downstream.readers import REPAIR, pick, read_json_rows
from downstream.task import FinetuneConfig, Task, TextExample

FOLDER = "klue/wos-v1.1"
URL = "https://raw.githubusercontent.com/KLUE-benchmark/KLUE/main/klue_benchmark/wos-v1.1"
LICENCE = "CC-BY-SA-4.0"


def read_dialogues(path: Path) -> list[TextExample]:
    """Read `guid dialogue` objects: turns of `role`, `text` and, of the user, `state`; one line for each turn."""
    examples = []
    for where, record in read_json_rows(path):
        lines: list[str] = []
        states: list[list[str]] = []
        for turn in pick(record, "dialogue", where, list):
            role, text = pick(turn, "role", where, str), " ".join(pick(turn, "text", where, str).split())
            if role not in {"user", "sys"}:
                raise DataError(where, f"role '{role}' is neither user nor sys", REPAIR)
            lines.append(f"{USER if role == 'user' else 'sys: '}{nfc(text)}")
            if role == "user":
                state = pick(turn, "state", where, list)
                if not all(isinstance(slot, str) for slot in state):
                    raise DataError(where, "a slot of a state is no text", REPAIR)
                states.append(sorted(nfc(slot) for slot in state))
        id_ = pick(record, "guid", where, str)
        examples.append(TextExample(id_, "\n".join(lines), None, json.dumps(states, ensure_ascii=False)))
    return examples


TASK = Task(
    name="klue-wos",
    title="KLUE-WoS",
    family=DialogueState(),
    files={
        split: OfficialFile(path=f"{FOLDER}/wos-v1.1_{split}.json", url=f"{URL}/wos-v1.1_{split}.json", licence=LICENCE)
        for split in ("train", "dev")
    },
    num_examples={"train": 8_000, "dev": 1_000},
    read=read_dialogues,
    metrics=(joint_goal_accuracy, slot_f1),
    chance=0.0,
    finetune=FinetuneConfig(),
    source="Park et al. 2021, KLUE, github KLUE-benchmark/KLUE",
    licence=LICENCE,
)
