"""KLUE-RE: the relation of two entities in a sentence of news or Wikipedia (Park et al. 2021, KLUE v1.1).

The sentence is read with typed entity markers of plain punctuation, which every vocabulary has: `@ * PER * 김구 @` for
the subject and `# ^ LOC ^ 서울 #` for the object (Zhou and Chen 2022). KLUE-baseline adds four special tokens instead.
"""

from pathlib import Path
from typing import Any

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from downstream.families.classification import Classification
from downstream.metrics import micro_f1_without
from downstream.readers import REPAIR, pick, read_json_rows
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.klue import LICENCE, SOURCE, klue_files

NO_RELATION = "no_relation"
# In the order of KLUE's relation_list.json.
RELATIONS = (
    NO_RELATION,
    "org:top_members/employees",
    "org:members",
    "org:product",
    "per:title",
    "org:alternate_names",
    "per:employee_of",
    "org:place_of_headquarters",
    "per:product",
    "org:number_of_employees/members",
    "per:children",
    "per:place_of_residence",
    "per:alternate_names",
    "per:other_family",
    "per:colleagues",
    "per:origin",
    "per:siblings",
    "per:spouse",
    "org:founded",
    "org:political/religious_affiliation",
    "org:member_of",
    "per:parents",
    "org:dissolved",
    "per:schools_attended",
    "per:date_of_death",
    "per:date_of_birth",
    "per:place_of_birth",
    "per:place_of_death",
    "org:founded_by",
    "per:religion",
)


def read_sentences(path: Path) -> list[TextExample]:
    """Read `guid sentence subject_entity object_entity label` objects; entity offsets include their last character."""
    examples = []
    for where, record in read_json_rows(path):
        sentence = pick(record, "sentence", where, str)
        spans = [_span(record, f"{role}_entity", sentence, where) for role in ("subject", "object")]
        if spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]:
            raise DataError(where, "subject and object overlap", REPAIR)
        text = sentence
        for (start, end, kind), (outer, inner) in sorted(
            zip(spans, (("@", "*"), ("#", "^")), strict=True), reverse=True
        ):
            text = f"{text[:start]}{outer} {inner} {kind} {inner} {text[start : end + 1]} {outer}{text[end + 1 :]}"
        examples.append(
            TextExample(pick(record, "guid", where, str), nfc(text), None, pick(record, "label", where, str))
        )
    return examples


def _span(record: Any, column: str, sentence: str, where: str) -> tuple[int, int, str]:
    """Return first and last character of an entity, and its type."""
    entity = pick(record, column, where, dict)
    start, end = pick(entity, "start_idx", where, int), pick(entity, "end_idx", where, int)
    word = pick(entity, "word", where, str)
    if start < 0 or sentence[start : end + 1] != word:
        raise DataError(where, f"the {column} '{word}' is not at offset {start}", REPAIR)
    return start, end, pick(entity, "type", where, str)


TASK = Task(
    name="klue-re",
    title="KLUE-RE",
    family=Classification(labels=RELATIONS),
    files=klue_files("klue-re-v1.1"),
    num_examples={"train": 32_470, "dev": 7_765},
    read=read_sentences,
    # AUPRC, KLUE's second metric, needs probabilities; predictions are labels.
    metrics=(micro_f1_without(NO_RELATION),),
    chance=1 / len(RELATIONS),
    finetune=FinetuneConfig(epochs=3, max_length=256),
    source=SOURCE,
    licence=LICENCE,
)
