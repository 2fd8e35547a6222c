"""The task registry: every task's facts, its sample, its official files, and one line for every damaged file."""

import json
import pkgutil
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from corpora.foundation.errors import DataError, UsageError
from corpora.foundation.files import SAMPLE_ROOT, sha256
from corpora.official import OfficialFile
from downstream import tasks
from downstream.families.classification import Classification, Regression
from downstream.families.multiple_choice import MultipleChoice
from downstream.families.retrieval import Retrieval
from downstream.families.span_qa import SpanQA
from downstream.metrics import bootstrap_ci95
from downstream.summaries.family import SentenceChoice
from downstream.task import Example, Family, QuestionExample, Task, TextExample, all_tasks, get_task
from downstream.tasks import derived, klue, kobest, paraphrases

Write = Callable[[str, str | bytes], Path]
Fails = Callable[..., AbstractContextManager[None]]

OFFICIAL = [task for task in all_tasks().values() if not task.base]
SAMPLES = [task for task in all_tasks().values() if task.is_sample and task.official_name in all_tasks()]
NOWHERE = Path("/nonexistent")


def name(task: object) -> str | None:
    return task.name if isinstance(task, Task) else None


# --- the registry ---------------------------------------------------------------------------------------------------


def test_every_file_is_a_task_under_its_own_name_and_every_sample_another() -> None:
    packages = (tasks, derived, klue, kobest, paraphrases)
    found = [m for p in packages for m in pkgutil.iter_modules(p.__path__) if not m.ispkg]
    modules = [m.name for m in found if not m.name.startswith("_")]
    named = {task.official_name for task in all_tasks().values() if task.name.startswith(task.official_name)}
    assert sorted(module.replace("_", "-") for module in modules) == sorted(named)
    assert {"nsmc", "klue-nli", "klue-sts", "klue-mrc", "korquad"} <= {task.name for task in OFFICIAL}
    assert {"klue-ner", "klue-tc", "korsts", "kornli", "hate", "hate-bias"} <= {task.name for task in OFFICIAL}
    assert all(key == task.name for key, task in all_tasks().items())
    assert len({task.title for task in all_tasks().values()}) == len(all_tasks())


def test_a_task_states_its_facts(subtests: pytest.Subtests) -> None:
    for task in all_tasks().values():
        with subtests.test(task=task.name):
            assert task.source
            assert task.licence
            assert {task.train_split, task.eval_split} <= set(task.num_examples)
            names = {split: task.split_files.get(split, (split,)) for split in task.num_examples}
            assert sorted(name for group in names.values() for name in group) == sorted(task.files)
            assert all(number > 0 for number in task.num_examples.values())
            assert len({metric.key for metric in task.metrics}) == len(task.metrics) >= 1
            for file in task.files.values():
                # What is embedded and nowhere else has no address.
                assert file.url.startswith("https://") or (task.is_sample and (SAMPLE_ROOT / file.path).is_file())
                # Under the data root a file may carry its source's name before its own.
                assert file.obtain or Path(file.path).name.endswith(Path(urlsplit(file.url).path).name)
                assert not file.obtain or "{target}" in file.obtain
                assert file.licence
                assert file.sha256 is None or len(bytes.fromhex(file.sha256)) == 32
            family = task.family
            num_classes = len(family.labels) if isinstance(family, Classification) else 0
            num_classes = family.num_choices if isinstance(family, MultipleChoice) else num_classes
            if not isinstance(family, SentenceChoice | Retrieval):
                assert task.chance == (pytest.approx(1 / num_classes) if num_classes else 0.0)


def test_a_sample_passes_for_no_official_task_and_names_where_it_is_from(subtests: pytest.Subtests) -> None:
    for task in SAMPLES:
        with subtests.test(task=task.name):
            assert task.name == f"{task.official_name}-sample"
            assert get_task(task.official_name).name == task.base
            assert task.title != get_task(task.base).title


def test_the_file_that_samples_name_as_their_source_exists() -> None:
    assert {task.source for task in SAMPLES} == {"corpora/sample/SOURCES.md"}
    assert (SAMPLE_ROOT / "SOURCES.md").is_file()


def test_a_sample_is_read_in_full_and_its_golds_score_one_in_every_metric(subtests: pytest.Subtests) -> None:
    for task in SAMPLES:
        with subtests.test(task=task.name):
            for split in task.files:
                examples, golds = task.read_split(split, NOWHERE).examples, task.read_split(split, NOWHERE).golds
                assert len(examples) == task.num_examples[split] >= 60
                assert {getattr(example, "pair", None) is not None for example in examples} == {task.takes_pairs}
                predictions = [gold[0] if isinstance(gold, tuple) else gold for gold in golds]
                assert [metric(predictions, golds) for metric in task.metrics] == pytest.approx(
                    [1.0] * len(task.metrics)
                )


def test_shuffled_golds_score_chance(subtests: pytest.Subtests) -> None:
    for task in [t for t in SAMPLES if isinstance(t.family, Classification)]:
        with subtests.test(task=task.name):
            golds = task.read_split(task.train_split, NOWHERE).golds
            shuffled = [golds[k] for k in np.random.default_rng(0).permutation(len(golds))]
            low, high = bootstrap_ci95(task.metrics[0], [task.metrics[0].columns(shuffled, golds)]) or (1.0, 0.0)
            assert low < task.chance < high
            assert high - low < 0.2


def test_a_task_is_found_with_underscores_and_in_any_case(subtests: pytest.Subtests) -> None:
    for spelling in (
        "klue-nli",
        "klue_nli",
        "KLUE-NLI",
        "Klue_Nli",
    ):
        with subtests.test(spelling=spelling):
            assert get_task(spelling) is all_tasks()["klue-nli"]


def test_an_unknown_task_is_one_line_with_the_nearest_name(fails: Fails, subtests: pytest.Subtests) -> None:
    for misspelt, nearest in (
        ("korqad", "korquad"),
        ("klue_nil", "klue-nli"),
        ("nsmc_sampel", "nsmc-sample"),
    ):
        message = f"did you mean '{nearest}'?"
        with subtests.test(misspelt), fails(UsageError, "--tasks: ", f"unknown task '{misspelt}'", message):
            get_task(misspelt)


# --- damaged files --------------------------------------------------------------------------------------------------


def squad(id_column: str, **more: object) -> str:
    def question(number: int, answers: list[dict[str, object]]) -> dict[str, object]:
        return {id_column: f"q{number}", "question": f"{number}번 질문은?", "answers": answers, **more}

    paragraph = {
        "context": "서울은 대한민국의 수도다.",
        "qas": [
            question(1, [{"text": "서울", "answer_start": 0}]),
            question(2, [{"text": "수도", "answer_start": 10}]),
        ],
    }
    return json.dumps({"version": "1", "data": [{"title": "서울", "paragraphs": [paragraph]}]}, ensure_ascii=False)


VALID = {
    "hate": 'comments\tcontain_gender_bias\tbias\thate\n좋다\tFalse\tnone\tnone\n"""꺄"" ~~"\tTrue\tgender\thate\n',
    "hate-bias": 'comments\tcontain_gender_bias\tbias\thate\n좋다\tFalse\tothers\tnone\n"싫다\tTrue\tgender\thate\n',
    "klue-ner": "## 컬럼명 : CHAR\tNE_TAG\n"
    "## ner_0\t<홍:PS> #1\n홍\tB-PS\n \tB-QT\n#\tO\n1\tO\n\t\n"
    "## ner_1\t나\n나\tO\n",
    "klue-tc": json.dumps(
        [
            {"guid": f"g{k}", "title": "제목", "predefined_news_category": "사회", "label": label}
            for k, label in enumerate(("정치", "IT과학", "생활문화"))
        ]
    ),
    "kornli": 'sentence1\tsentence2\tgold_label\n"비가 왔다.\t비"다.\tentailment\n눈이다.\t비다.\tcontradiction\n',
    "nsmc": "id\tdocument\tlabel\n1\t재밌다\t1\n2\t\t0\n3\t“별로”\t0\n",
    "klue-nli": json.dumps(
        [
            {"guid": f"g{k}", "premise": "비가 온다.", "hypothesis": f"{k}", "gold_label": label}
            for k, label in enumerate(("entailment", "contradiction", "neutral"))
        ]
    ),
    "klue-sts": json.dumps(
        [
            {"guid": f"g{k}", "sentence1": "가", "sentence2": "나", "labels": {"label": s, "real-label": s}}
            for k, s in enumerate((0.0, 2.7142857142857144, 5.0))
        ]
    ),
    "klue-mrc": squad("guid", is_impossible=False, question_type=2),
    "korquad": squad("id"),
}


def damaged(write: Write, task: str, content: str | bytes) -> tuple[Task, Path]:
    """Return the official task on a file of ours that is expected to hold as many examples as `VALID`."""
    official = get_task(task)
    path = write(official.files[official.eval_split].path, content)
    expected = len(official.read(write("valid", VALID[task])))
    return replace(official, num_examples={official.eval_split: expected}), path


def test_an_undamaged_file_is_read(write: Write, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for task in VALID:
        with subtests.test(task=task):
            ours, _ = damaged(write, task, VALID[task])
            split = ours.read_split(ours.eval_split, tmp_path)
            assert len(split.examples) == len(split.golds) == ours.num_examples[ours.eval_split]
            assert {getattr(example, "pair", None) is not None for example in split.examples} == {ours.takes_pairs}


# task, what is replaced in the valid file, by what, place in the message behind the path, message
DAMAGES = [
    ("hate", "\thate\n좋다", "\tanger\n좋다", ":1", "missing column 'hate'"),
    ("hate", "gender\thate", "gender\thatred", ", example 2", "label 'hatred' is unknown; did you mean 'hate'?"),
    ("hate", "gender\thate", "hate", ":3", "3 columns where the header has 4"),
    ("hate-bias", "\tothers", "\tother", ", example 1", "label 'other' is unknown; did you mean 'others'?"),
    ("hate-bias", "\tbias", "\tbiases", ":1", "missing column 'bias'"),
    ("klue-ner", "홍\tB-PS", "홍\tB-PER", ", example 1", "tag 'B-PER' is unknown"),
    ("klue-ner", "홍\tB-PS", "홍길\tB-PS", ":3", "'홍길 B-PS' is not one character, a tab and its tag"),
    ("klue-ner", "홍\tB-PS", "홍 B-PS", ":3", "is not one character, a tab and its tag"),
    ("klue-ner", "홍\tB-PS", "홍\t", ":3", "is not one character, a tab and its tag"),
    ("klue-ner", "홍\tB-PS", "홍\tB-PS O", ", example 1", "4 tags for 3 characters"),
    ("klue-ner", "## ner_1\t나\n", "", ":9", "has no '## id' line"),
    ("klue-ner", "## ner_1", "## ner_0", ", example 2", "duplicate id 'ner_0'"),
    ("klue-ner", "\t\n## ner_1\t나\n", "", "", "1 examples where klue-ner dev has 2"),
    ("klue-tc", '"IT\\uacfc\\ud559"', '"IT"', ", example 2", "label 'IT' is unknown"),
    ("klue-tc", '"title"', '"headline"', ", record 1", "missing column 'title'"),
    ("klue-tc", '"g1"', '"g0"', ", example 2", "duplicate id 'g0'"),
    ("kornli", "contradiction", "-", ", example 2", "label '-' is unknown"),
    ("kornli", "비다.\tcontradiction", "비다. contradiction", ":3", "2 columns where the header has 3"),
    ("nsmc", "3\t“별로”\t0", "3\t“별로”\t2", ":4", "label '2'"),
    ("nsmc", "3\t“별로”\t0", "3\t“별로”", ":4", "2 columns where the header has 3"),
    ("nsmc", "3\t“별로”\t0", "3\t“별\t로”\t0", ":4", "4 columns where the header has 3"),
    ("nsmc", "document", "text", ":1", "missing column 'document'"),
    ("nsmc", "3\t", "1\t", ", example 3", "duplicate id '1'"),
    ("nsmc", "3\t“별로”\t0\n", "", "", "2 examples where nsmc test has 3"),
    ("klue-nli", '"neutral"', '"netural"', ", example 3", "label 'netural' is unknown; did you mean 'neutral'?"),
    ("klue-nli", '"neutral"', "2", ", record 3", "column 'gold_label' holds 2"),
    ("klue-nli", '"gold_label": "neutral"', '"label": "neutral"', ", record 3", "missing column 'gold_label'"),
    ("klue-nli", '"g2"', '"g0"', ", example 3", "duplicate id 'g0'"),
    ("klue-nli", "[", '{"data": [', "", "not valid JSON"),
    ("klue-nli", VALID["klue-nli"], "{}", "", "a dict where an array is expected"),
    ("klue-nli", VALID["klue-nli"], "[]", "", "0 examples where klue-nli dev has 3"),
    ("klue-sts", '"real-label": 5.0', '"real-label": 5.1', ", record 3", "score 5.1"),
    ("klue-sts", '"real-label": 5.0', '"real-label": "높음"', ", record 3", "score '높음'"),
    ("klue-sts", '"real-label": 5.0', '"real-label": NaN', ", record 3", "score nan"),
    ("klue-sts", '"real-label": 5.0', '"label": 5.0', ", record 3", "missing column 'real-label'"),
    ("korquad", '"answer_start": 10', '"answer_start": 9', ", question q2", "the answer '수도' is not at offset 9"),
    ("korquad", '"text": "수도"', '"text": "수돗물"', ", question q2", "the answer '수돗물' is not at offset 10"),
    ("korquad", '"id": "q2"', '"id": "q1"', ", example 2", "duplicate id 'q1'"),
    ("korquad", '"question": "2번 질문은?"', '"ask": ""', ", question q2", "missing column 'question'"),
    ("korquad", '"question": "2번 질문은?"', '"question": " "', ", example 2", "empty question"),
    ("korquad", '"id": "q2", ', "", ", article 1", "missing column 'id'"),
    ("korquad", '"title": "서울", ', "", ", article 1", "missing column 'title'"),
    ("korquad", '"data"', '"rows"', "", "missing column 'data'"),
    ("korquad", '{"text": "수도", "answer_start": 10}', "", ", question q2", "0 answers"),
    ("klue-mrc", '"is_impossible": false', '"is_impossible": true', ", question q1", "is_impossible is True"),
    ("klue-mrc", '{"text": "수도", "answer_start": 10}', "", ", question q2", "is_impossible is False with 0 answers"),
]


def test_a_damaged_file_is_one_line_naming_file_and_place(
    write: Write, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    for task, old, new, place, what in DAMAGES:
        with subtests.test(task=task, old=old, new=new, place=place, what=what):
            assert old in VALID[task]
            ours, path = damaged(write, task, VALID[task].replace(old, new))
            with fails(DataError, f"{path}{place}: ", what):
                ours.read_split(ours.eval_split, tmp_path)


def test_a_value_of_another_type_is_one_line_naming_the_file(
    write: Write, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, str, str]] = [
        ("korquad", '"answer_start": 10', '"answer_start": "10"'),
        ("korquad", '"answer_start": 10', '"answer_start": -4'),  # a slice from the end happens to hold the answer
        ("korquad", '[{"text": "수도", "answer_start": 10}]', "null"),
        ("korquad", '"context": "서울은 대한민국의 수도다."', '"context": null'),
        ("korquad", VALID["korquad"], '{"data": null}'),
        ("klue-mrc", '"question_type": 2', '"question_type": null'),
        ("klue-nli", '"premise": "\\ube44\\uac00 \\uc628\\ub2e4."', '"premise": null'),
        ("klue-nli", '"guid": "g2"', '"guid": ' + "1" * 5_000),
    ]
    for task, old, new in cases:
        with subtests.test(task=task, new=new):
            assert old in VALID[task]
            ours, path = damaged(write, task, VALID[task].replace(old, new))
            with fails(DataError, path):
                ours.read_split(ours.eval_split, tmp_path)


def test_a_damaged_file_of_any_task_is_one_line_naming_it(
    write: Write, tmp_path: Path, fails: Fails, subtests: pytest.Subtests
) -> None:
    cases_1: list[tuple[Callable[[bytes], bytes], str]] = [
        (lambda content: content[: len(content) // 2], ""),
        (lambda content: content[:0], "zero bytes"),
        (lambda content: (content.decode() + "가").encode("cp949"), "not UTF-8"),
    ]
    for task in VALID:
        for damage, what in cases_1:
            with subtests.test(task=task, what=what):
                ours, path = damaged(write, task, damage(VALID[task].encode()))
                with fails(DataError, path, what):
                    ours.read_split(ours.eval_split, tmp_path)


def test_a_family_refuses_what_is_none_of_its_examples(fails: Fails, subtests: pytest.Subtests) -> None:
    cases: list[tuple[Family, Example, str]] = [
        (Classification(("부정", "긍정")), TextExample("1", "가", None, "중립"), "label '중립' is unknown"),
        (Regression(0, 5), TextExample("1", "가", "나", 5.5), "score 5.5"),
        (Regression(0, 5), TextExample("1", "가", "나", "3"), "score 3"),
        (SpanQA(has_unanswerable=False), QuestionExample("1", "왜?", "본문", ()), "no answer"),
        (SpanQA(has_unanswerable=True), QuestionExample("1", "왜?", " ", ()), "empty question or context"),
    ]
    for family, example, what in cases:
        with subtests.test(what=what), fails(DataError, "file, example 1: ", what):
            family.check(example, "file, example 1")


def test_a_missing_file_is_unavailable_with_the_command_that_fetches_it(
    tmp_path: Path, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file: OfficialFile = get_task("korquad").files["dev"]
    with fails(DataError, file.path, f"curl -fL --create-dirs -o '{tmp_path / file.path}' '{file.url}'"):
        get_task("korquad").read_split("dev", tmp_path)


def test_texts_of_pairs_and_reviews_are_composed_and_contexts_stay_as_they_are(write: Write) -> None:
    review = get_task("nsmc").read(write("a", "id\tdocument\tlabel\n1\t\u1100\u1161\t1\n"))[0]
    assert review.text == "가"
    decomposed = squad("id").replace("서울은", "\u1100\u1161서울은").replace('"answer_start": 0', '"answer_start": 2')
    questions = get_task("korquad").read(write("b", decomposed.replace('"answer_start": 10', '"answer_start": 12')))
    assert questions[0].context.startswith("\u1100\u1161서울")


def test_the_parts_of_a_file_that_is_quoted_like_csv_are_the_publishers_text(write: Write) -> None:
    first, second = get_task("hate").read(write("a", VALID["hate"]))
    assert (first.text, second.text, second.label) == ("좋다", '"꺄" ~~', "hate")
    assert get_task("hate-bias").read(write("b", VALID["hate-bias"]))[1].text == '"싫다'


def test_blanks_of_a_tagged_sentence_have_no_tag(write: Write) -> None:
    first, second = get_task("klue-ner").read(write("a", VALID["klue-ner"]))
    assert (first.id, first.text, first.gold) == ("ner_0", "홍 #1", "B-PS O O")
    assert (second.id, second.text, second.gold) == ("ner_1", "나", "O")


def test_a_split_of_two_files_is_read_in_order_and_its_digest_is_of_both(write: Write, tmp_path: Path) -> None:
    task = replace(get_task("kornli"), num_examples={"train": 3})
    files = [task.files[name] for name in task.split_files["train"]]
    assert [Path(file.path).name for file in files] == ["snli_1.0_train.ko.tsv", "multinli.train.ko.tsv"]
    header = "sentence1\tsentence2\tgold_label\n"
    paths = [
        write(files[0].path, header + "가\t나\tneutral\n다\t라\tneutral\n"),
        write(files[1].path, header + "마\t바\tentailment\n"),
    ]
    split = task.read_split("train", tmp_path)
    assert [example.text for example in split.examples] == ["가", "다", "마"]
    assert len({example.id for example in split.examples}) == 3
    assert split.sha256 == sha256(*paths)
    write(files[1].path, header + "마\t바\tentails\n")
    with pytest.raises(DataError, match=rf"{paths[1]}, example 1: label 'entails' is unknown"):
        task.read_split("train", tmp_path)
    write(files[1].path, header)
    with pytest.raises(DataError, match=rf"{paths[0]}, {paths[1]}: 2 examples where kornli train has 3"):
        task.read_split("train", tmp_path)


# --- the official files ---------------------------------------------------------------------------------------------


@pytest.mark.real_data
def test_official_labels_are_as_many_as_published(real_data: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, dict[str, int]]] = [
        ("nsmc", "train", {"negative": 75_173, "positive": 74_827}),
        ("nsmc", "test", {"negative": 24_827, "positive": 25_173}),
        ("klue-nli", "dev", {"entailment": 1_000, "contradiction": 1_000, "neutral": 1_000}),
        ("kornli", "dev", {"entailment": 830, "contradiction": 830, "neutral": 830}),
        ("hate", "train", {"hate": 1_911, "offensive": 2_499, "none": 3_486}),
        ("hate-bias", "train", {"gender": 1_232, "others": 1_516, "none": 5_148}),
    ]
    for task, split, labels in cases:
        with subtests.test(task=task, split=split):
            read = get_task(task).read_split(split, real_data)
            assert Counter(read.golds) == labels
            assert read.sha256 == get_task(task).files[split].sha256
            if task == "nsmc":
                assert sum(not example.text for example in read.examples) == {"train": 5, "test": 3}[split]


@pytest.mark.real_data
def test_official_similarities_are_the_unrounded_means(real_data: Path) -> None:
    read = get_task("klue-sts").read_split("dev", real_data)
    assert len(read.golds) == 519
    assert sum(gold >= 3 for gold in read.golds) == 220
    assert any(gold != round(gold, 1) for gold in read.golds)
    assert read.sha256 == get_task("klue-sts").files["dev"].sha256


@pytest.mark.real_data
def test_official_entities_are_as_many_as_measured(real_data: Path) -> None:
    """Two more entities, a QT and an LC, begin on a blank by mistake and are gone with its row."""
    read = get_task("klue-ner").read_split("dev", real_data)
    tags = Counter(tag for gold in read.golds for tag in gold.split())
    begun = {tag[2:]: number for tag, number in tags.items() if tag.startswith("B-")}
    assert begun == {"PS": 4_418, "QT": 3_150, "DT": 2_312, "OG": 2_182, "LC": 1_648, "TI": 545}
    assert max(len(example.text) for example in read.examples) == 145
    assert sum(example.text.count(" ") for example in read.examples) == 60_379
    assert read.sha256 == get_task("klue-ner").files["dev"].sha256


@pytest.mark.real_data
def test_official_questions_have_one_exact_answer_each(real_data: Path) -> None:
    read = get_task("korquad").read_split("dev", real_data)
    assert len(read.examples) == 5_774
    assert max(len(example.context) for example in read.examples) == 2_946
    assert {len(example.answers) for example in read.examples} == {1}
    assert max(len(example.gold[0]) for example in read.examples) == 43
    assert read.sha256 == get_task("korquad").files["dev"].sha256
