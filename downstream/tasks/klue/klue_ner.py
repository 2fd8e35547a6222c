"""KLUE-NER: people, places, organisations, dates, times, quantities in news and reviews (Park et al. 2021, v1.1)."""

from pathlib import Path

from corpora.foundation.errors import DataError
from downstream.families.tagging import BLANK, Tagging
from downstream.metrics import KLUE_NER_TAGS, char_macro_f1, entity_f1
from downstream.readers import REPAIR
from downstream.substitutes import Division
from downstream.task import FinetuneConfig, Task, TextExample
from downstream.tasks.klue import LICENCE, SOURCE, klue_files
from downstream.tasks.klue._layouts import read_annotated_sentences


def read_sentences(path: Path) -> list[TextExample]:
    """Read sentences of `character<TAB>tag` rows.

    Blanks are rows too; their tags are ignored. Characters are not normalised, because each has its tag.
    """
    examples = []
    for id_, rows in read_annotated_sentences(path):
        text, tags = "", []
        for where, row in rows:
            character, separator, tag = row.partition("\t")
            if len(character) != 1 or not separator or not tag.strip():
                raise DataError(where, f"'{row:.40}' is not one character, a tab and its tag", REPAIR)
            text += character
            tags += [] if character == BLANK else [tag]
        examples.append(TextExample(id_, text, None, BLANK.join(tags)))
    return examples


TASK = Task(
    name="klue-ner",
    title="KLUE-NER",
    family=Tagging(tags=KLUE_NER_TAGS),
    files=klue_files(
        "klue-ner-v1.1",
        ".tsv",
        known={
            "dev": ("0f4d5e818f7b82d299c3a87856fc40a706f5943207580ddb252397e387050a54", 2_635_045),
        },
    ),
    num_examples={"train": 21_008, "dev": 5_000},
    read=read_sentences,
    metrics=(entity_f1, char_macro_f1),
    chance=0.0,
    # KLUE-baseline's; inputs are padded to the longest of their batch, not to this length.
    finetune=FinetuneConfig(epochs=3, warmup_ratio=0.0, max_length=510),
    source=SOURCE,
    licence=LICENCE,
    substitute=Division("dev", {"train": 4_062, "dev": 938}),
)
