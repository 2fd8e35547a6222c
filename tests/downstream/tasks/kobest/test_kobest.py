"""KoBEST: what the readers make of the publisher's files, and a stand-in trained on each task."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from downstream.families.multiple_choice import MultipleChoice
from downstream.finetuning.result import Result
from downstream.task import ChoiceExample, Split, get_task

Read = Callable[[str, str], Split]

BOOLQ = "ID\tText\tQuestion\tAnswer\n1\t“비”가 왔다.\t비가 왔나요?\tTrue\n2\t눈이다.\t\u1107\u1175인가요?\tFALSE\n"
COPA = (
    "ID\tsentence\tquestion\t1\t2\tAnswer\n"
    "1\t비가 왔다.\t결과\t젖었다.\t말랐다.\t1\n2\t젖었다.\t원인 \t갰다.\t비다.\t2\n"
)
HELLASWAG = (
    "context\tchoice1\tchoice2\tchoice3\tchoice4\tlabel\n"
    '비가 왔다.\t가\t나\t"""다""를 쓴다."\t라\t2\n비가 왔다.\t마\t바\t사\t아\t0\n'
)
SENTINEG = (
    "ID\tLabel_origin\tText_origin\tLabel\tText\tCategory_neg\n"
    "7\t0\t별로다\t1\t별로가 아니다\t1\n9\t1\t좋다\t0\t안 좋다\t2\n"
)
WIC = (
    "ID\tTarget\tSENTENCE1\tDictionary 1\tLink 1\tSENTENCE2\tDictionary 2\tLink2\tANSWER\n"
    "1\t배\t[배]를 탔다.\t1\thttps://a\t[배]를 먹었다.\t2\thttps://b\tFalse\n"
    "2\t배\t[배]를 탔다.\t1\thttps://a\t[배]가 떴다.\t1\thttps://a\tTRUE\n"
)
FILES = {
    "kobest-boolq": BOOLQ,
    "kobest-copa": COPA,
    "kobest-hellaswag": HELLASWAG,
    "kobest-sentineg": SENTINEG,
    "kobest-wic": WIC,
}


def test_rows_are_read_with_their_labels(read_small: Read) -> None:
    one, two = read_small("kobest-boolq", BOOLQ).examples
    assert (one.text, one.pair, one.label) == ("“비”가 왔다.", "비가 왔나요?", "true")
    assert (two.pair, two.label) == ("비인가요?", "false")
    one, two = read_small("kobest-copa", COPA).examples
    assert one == ChoiceExample("1", "비가 왔다. 그래서", None, "0", ("젖었다.", "말랐다."))
    assert (two.text, two.label) == ("젖었다. 왜냐하면", "1")
    one, two = read_small("kobest-hellaswag", HELLASWAG).examples
    assert (one.id, one.choices[2], one.label, two.id) == ("1", '"다"를 쓴다.', "2", "2")
    one, two = read_small("kobest-sentineg", SENTINEG).examples
    assert (one.text, one.label, two.text, two.label) == ("별로가 아니다", "positive", "안 좋다", "negative")
    one, two = read_small("kobest-wic", WIC).examples
    assert (one.text, one.pair, one.label, two.label) == ("[배]를 탔다.", "[배]를 먹었다.", "false", "true")


def test_a_damaged_row_is_refused(refuses: Callable[..., None], subtests: pytest.Subtests) -> None:
    cases = [
        ("kobest-boolq", "FALSE", "아니오", ":3: '아니오' is none of false, true"),
        ("kobest-boolq", "Question", "question", "missing column 'Question'"),
        ("kobest-copa", "결과", "결론", ":2: '결론' is none of 원인, 결과"),
        ("kobest-copa", "\t2\n", "\t3\n", ":3: '3' is none of 1, 2"),
        ("kobest-copa", "말랐다.", "젖었다.", "1 different choices where there should be 2"),
        ("kobest-hellaswag", "\t0\n", "\t4\n", "label '4' is not a choice"),
        ("kobest-hellaswag", "\t아\t", "\t", "5 columns where the header has 6"),
        ("kobest-sentineg", "\t0\t안", "\t-1\t안", ":3: '-1' is none of 0, 1"),
        ("kobest-wic", "\tTRUE", "\tT", ":3: 'T' is none of false, true"),
    ]
    for name, old, new, what in cases:
        with subtests.test(name=name, what=what):
            refuses(name, FILES[name], old, new, what)


def test_a_stand_in_is_trained_and_scored(
    read_small: Read, train_and_score: Callable[[str, Split], Result], subtests: pytest.Subtests
) -> None:
    for name, content in FILES.items():
        with subtests.test(name=name):
            result = train_and_score(name, read_small(name, content))
            family = get_task(name).family
            labels = {"0", "1", "2", "3"} if isinstance(family, MultipleChoice) else set(getattr(family, "labels", ()))
            assert set(result.predictions) <= labels


def test_settings_are_chosen_on_another_split_than_the_reported_one(subtests: pytest.Subtests) -> None:
    for name in FILES:
        with subtests.test(name=name):
            task, choosing = get_task(name), get_task(f"{name}-dev")
            assert (task.eval_split, choosing.eval_split) == ("test", "dev")
            assert choosing.files == task.files


@pytest.mark.real_data
def test_official_labels_are_as_many_as_counted(real_data: Path, subtests: pytest.Subtests) -> None:
    cases = [
        ("kobest-boolq", {"true": 705, "false": 699}),
        ("kobest-copa", {"0": 517, "1": 483}),
        ("kobest-hellaswag", {"0": 124, "1": 137, "2": 121, "3": 118}),
        ("kobest-sentineg", {"positive": 200, "negative": 197}),
        ("kobest-wic", {"true": 615, "false": 645}),
    ]
    for name, labels in cases:
        with subtests.test(name=name):
            task = get_task(name)
            splits = {split: task.read_split(split, real_data) for split in ("train", "dev", "test")}
            assert Counter(splits["test"].golds) == labels
            assert all(splits[split].sha256 == task.files[split].sha256 for split in splits)
