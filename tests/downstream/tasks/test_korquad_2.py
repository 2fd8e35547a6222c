"""KorQuAD 2.1: pages in archives of JSON files, and answers compared without their tags."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from corpora.foundation.errors import DataError
from downstream.finetune import TaskData, finetune
from downstream.metrics import korquad_2_char_f1, korquad_2_em
from downstream.task import get_task

TASK = get_task("korquad-2")
CONTEXT = "<html><body><p>서울은 <b>수도</b>다.</p><table><tr><td>강</td></tr></table></body></html>"


def page(id_: str, answer: str, start: int | None = None) -> str:
    answers = {
        "text": answer,
        "answer_start": CONTEXT.index(answer) if start is None else start,
        "html_answer_start": 0,
    }
    qa = {"id": id_, "question": "무엇인가?", "answer": answers}
    page_ = {"title": "서울", "url": "https://ko.example", "context": CONTEXT, "raw_html": CONTEXT, "qas": [qa]}
    return json.dumps({"version": "KorQuAD_v2.1", "data": [page_]}, ensure_ascii=False)


def archive(*pages: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for number, content in enumerate(pages):
            file.writestr(f"korquad2.1_dev_{number}.json", content)
        file.writestr("README.txt", "not read")
    return buffer.getvalue()


def test_the_archives_of_a_split_are_read_one_after_the_other(
    write: Callable[[str, bytes], Path], tmp_path: Path, standins: dict[str, Path]
) -> None:
    paths = [TASK.files[name].path for name in TASK.split_files["dev"]]
    assert len(paths) == 2
    write(paths[0], archive(page("q1", "<b>수도</b>"), page("q2", "강")))
    write(paths[1], archive(page("q3", "서울")))
    split = replace(TASK, num_examples={"dev": 3}).read_split("dev", tmp_path)
    assert [(example.id, example.gold) for example in split.examples] == [
        ("q1", ("<b>수도</b>",)),
        ("q2", ("강",)),
        ("q3", ("서울",)),
    ]
    overrides = {"epochs": 1, "batch_size": 4, "max_length": 48}
    data = TaskData(split, split)
    result = finetune(TASK, standins["klue-bert"], out=tmp_path / "model", data=data, overrides=overrides)
    assert all(str(prediction) in CONTEXT for prediction in result.predictions)
    assert set(result.metrics) == {"exact_match", "f1"}


def test_a_damaged_archive_is_refused(write: Callable[[str, bytes], Path]) -> None:
    for content, what in (
        (archive(page("q1", "강"))[:100], "no archive of JSON files"),
        (archive("{"), "no archive of JSON files"),
        (archive(page("q1", "강", 0)), "the answer '강' is not at offset 0"),
        (archive(page("q1", "강").replace('"answer"', '"answers"')), "missing column 'answer'"),
    ):
        with pytest.raises(DataError, match=what):
            TASK.read(write("a.zip", content))


def test_answers_are_compared_without_tags() -> None:
    golds = [("<b>수도</b>",), ("<td>A &amp; B</td>",), ("(강)",)]
    assert korquad_2_em(["수도", "A & B", "강"], golds) == 1.0
    assert korquad_2_em(["<i>수도</i>다", "<td>a b</td>", "산"], golds) == pytest.approx(1 / 3)
    assert korquad_2_char_f1(["<i>수도</i>다", "a b", "산"], golds) == pytest.approx((0.8 + 1.0 + 0.0) / 3)
