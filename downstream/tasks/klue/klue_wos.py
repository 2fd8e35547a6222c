"""Wizard of Seoul, KLUE-DST: what a tourist wants by each turn of a dialogue (Park et al. 2021, KLUE v1.1)."""

import json
from pathlib import Path

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from downstream.families.dialogue_state import USER, DialogueState, joint_goal_accuracy, slot_f1
from downstream.readers import REPAIR, pick, read_json_rows
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.klue import LICENCE, SOURCE, klue_files


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
    files=klue_files("wos-v1.1"),
    num_examples={"train": 8_000, "dev": 1_000},
    read=read_dialogues,
    metrics=(joint_goal_accuracy, slot_f1),
    chance=0.0,
    finetune=FinetuneConfig(),
    source=SOURCE,
    licence=LICENCE,
)
