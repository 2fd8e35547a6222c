"""KLUE-DP, KLUE-RE and the pool of KLUE-TC: what the readers make of a file, and a stand-in trained on each."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.foundation.errors import DataError, DataUnavailableError
from downstream.families.dependency import Dependency
from downstream.finetuning.result import Result
from downstream.task import Split, get_task, read_task

Read = Callable[[str, str], Split]

DP = (
    "## 문장 구분자 : \\n\\n\n## 칼럼명 : INDEX\tWORD_FORM\tLEMMA\tPOS\tHEAD\tDEPREL\n"
    "## dp_0\t홍이 '밥을' 먹다.\n"
    "1\t홍이\t홍 이\tNNP+JKS\t3\tNP_SBJ\n2\t'밥을'\t' 밥 을 '\tSS\t3\tNP_OBJ\n3\t먹다.\t먹 다 .\tVV\t0\tVP\n\n"
    "## dp_1\t비다.\n1\t비다.\t비 다 .\tVV\t0\tVP\n"
)


def relation(number: int, label: str, **changes: object) -> dict[str, object]:
    return {
        "guid": f"g{number}",
        "sentence": "김구는 서울에서 났다.",
        "subject_entity": {"word": "김구", "start_idx": 0, "end_idx": 1, "type": "PER"},
        "object_entity": {"word": "서울", "start_idx": 4, "end_idx": 5, "type": "LOC"},
        "label": label,
        "source": "wikipedia",
    } | changes


RE = json.dumps([relation(0, "per:place_of_birth"), relation(1, "no_relation")], ensure_ascii=False)
FILES = {"klue-dp": DP, "klue-re": RE}


def test_a_parse_is_read_as_heads_and_relations(read_small: Read) -> None:
    one, two = read_small("klue-dp", DP).examples
    assert (one.id, one.text, one.label) == ("dp_0", "홍이 '밥을' 먹다.", "3:NP_SBJ 3:NP_OBJ 0:VP")
    assert (two.id, two.text, two.label) == ("dp_1", "비다.", "0:VP")


def test_entities_are_marked_with_punctuation_that_every_vocabulary_has(read_small: Read) -> None:
    one, two = read_small("klue-re", RE).examples
    assert one.text == "@ * PER * 김구 @는 # ^ LOC ^ 서울 #에서 났다."
    assert (one.label, two.label) == ("per:place_of_birth", "no_relation")
    turned = relation(0, "no_relation", subject_entity=relation(0, "")["object_entity"])
    turned["object_entity"] = relation(0, "")["subject_entity"]
    (example,) = read_small("klue-re", json.dumps([turned])).examples
    assert example.text == "# ^ PER ^ 김구 #는 @ * LOC * 서울 @에서 났다."


def test_a_damaged_file_is_refused(refuses: Callable[..., None], subtests: pytest.Subtests) -> None:
    cases = [
        ("klue-dp", "\t3\tNP_SBJ", "\t4\tNP_SBJ", "eojeol 1 has the head '4'"),
        ("klue-dp", "\t3\tNP_SBJ", "\t1\tNP_SBJ", "eojeol 1 has the head '1'"),
        ("klue-dp", "NP_SBJ", "NP_SUB", "relation 'NP_SUB' is unknown"),
        ("klue-dp", "2\t'밥을'", "4\t'밥을'", ":5: "),
        ("klue-dp", "\tSS\t3", "\t3", ":5: "),
        ("klue-dp", "## dp_1\t비다.\n", "", "has no '## id' line"),
        ("klue-dp", "## dp_1", "## dp_0", "duplicate id 'dp_0'"),
        ("klue-re", '"start_idx": 0', '"start_idx": 1', "the subject_entity '김구' is not at offset 1"),
        ("klue-re", '"start_idx": 0', '"start_idx": "0"', "column 'start_idx' holds '0'"),
        ("klue-re", "no_relation", "none", "label 'none' is unknown"),
        ("klue-re", '"object_entity"', '"object"', "missing column 'object_entity'"),
    ]
    for name, old, new, what in cases:
        with subtests.test(name=name, what=what):
            refuses(name, FILES[name], old, new, what)
    whole = {"word": "김구는 서울", "start_idx": 0, "end_idx": 5, "type": "PER"}
    overlapping = json.dumps([relation(0, "no_relation", subject_entity=whole)], ensure_ascii=False)
    with subtests.test("overlap"):
        refuses("klue-re", overlapping, "g0", "g1", "subject and object overlap")


def test_a_stand_in_is_trained_and_scored(
    read_small: Read, train_and_score: Callable[[str, Split], Result], subtests: pytest.Subtests
) -> None:
    for name, content in FILES.items():
        with subtests.test(name=name):
            split = read_small(name, content)
            result = train_and_score(name, split)
            if isinstance(get_task(name).family, Dependency):
                for prediction, example in zip(result.predictions, split.examples, strict=True):
                    get_task(name).family.check(replace(example, label=prediction), "prediction")


POOL = "title\ttopic\tseen_in\n" + "".join(f"제목 {k}\t{'경제' if k % 2 else '정치'}\tdacon:train\n" for k in range(40))


def test_headlines_of_the_pool_are_divided_by_their_text(
    write: Callable[[str, str], Path], tmp_path: Path, train_and_score: Callable[[str, Split], Result]
) -> None:
    task = get_task("klue-tc-pool")
    doubled = POOL + "".join(f"제목{k}\t사회\tx\n" for k in range(40)) + "가\t나 \t\t세계\tx\n"
    examples = task.read(write(task.files["train"].path, doubled))
    assert (examples[-1].text, examples[-1].label) == ("가 나", "세계")
    assert task.division is not None
    parts = task.division.parts(examples)
    small = replace(task, num_examples={name: len(part) for name, part in parts.items()})
    data = read_task(small, tmp_path)
    keys = [{"".join(example.text.split()) for example in split.examples} for split in (data.train, data.eval)]
    assert not keys[0] & keys[1]
    assert len(keys[0]) + len(keys[1]) == 41
    assert 0 < len(keys[1]) < 20
    result = train_and_score("klue-tc-pool", data.eval)
    assert set(result.predictions) <= set(getattr(task.family, "labels", ()))


def test_a_file_without_an_address_of_its_own_says_how_it_is_made(tmp_path: Path) -> None:
    for name, what in (("klue-tc-pool", "title topic seen_in"), ("paws-x", "tar -xzO x-final/ko/test_2k.tsv")):
        task = get_task(name)
        with pytest.raises(DataUnavailableError) as caught:
            task.read_split(task.eval_split, tmp_path)
        assert what in str(caught.value)
        assert str(tmp_path / task.files[task.eval_split].path) in str(caught.value)


def test_a_pool_with_another_header_or_an_empty_topic_is_refused(write: Callable[[str, str], Path]) -> None:
    task = get_task("klue-tc-pool")
    for old, new, what in (("topic", "label", "the header is"), ("\t정치\t", "\t\t", "without headline or topic")):
        with pytest.raises(DataError, match=what):
            task.read(write("pool.tsv", POOL.replace(old, new)))


@pytest.mark.real_data
def test_the_official_parses_are_as_many_as_measured(real_data: Path) -> None:
    read = get_task("klue-dp").read_split("dev", real_data)
    heads = [item.partition(":")[0] for gold in read.golds for item in gold.split()]
    assert (len(heads), heads.count("0")) == (22_496, 2_000)
    assert all(int(item.partition(":")[0]) > k for gold in read.golds for k, item in enumerate(gold.split()[:-1], 1))
    assert read.sha256 == get_task("klue-dp").files["dev"].sha256


@pytest.mark.real_data
def test_official_training_files_are_read(real_data: Path) -> None:
    nli, sts = get_task("klue-nli"), get_task("klue-sts")
    assert nli.read_split("train", real_data).sha256 == nli.files["train"].sha256
    assert len(sts.read_split("train", real_data).examples) == 11_668
    assert len(read_task(get_task("klue-tc-pool"), real_data).eval.examples) == 8_826
