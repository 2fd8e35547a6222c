"""What comes with the suite passes all checks; faults of many kinds are found, by name."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpora.foundation.checks import CheckFailedError, Checks
from corpora.foundation.errors import DataError
from corpora.readers.checks import READER_CHECKS
from corpora.readers.records import FileReader, Record, read_records
from downstream.checks.encoder import ENCODER_CHECKS
from downstream.checks.summarizer import SUMMARIZER_CHECKS
from downstream.checks.task import TASK_CHECKS, Subject
from downstream.encoders.hub import bundled
from downstream.summarize import Summarizer, Summary
from downstream.task import Task, all_tasks, get_task
from pressbert.checks import check_encoder, check_reader, check_summarizer, check_task

Write = Callable[[str, str], Path]


def failures(results: list[Any]) -> set[str]:
    return {result.name for result in results if result.status == "failed"}


def only(name: str, task: Task) -> str:
    """Run one check of a task; returns its status."""
    [function] = [function for function in TASK_CHECKS.functions if function.__name__ == name]
    [result] = Checks("task", [function]).run(Subject(task, Path("/nowhere")), task.name, on_fail="return")
    return result.status


def test_there_are_25_checks_or_more_of_each_kind_and_all_are_described() -> None:
    for checks in (TASK_CHECKS, ENCODER_CHECKS, SUMMARIZER_CHECKS, READER_CHECKS):
        assert len(checks.functions) >= 25, checks.kind
        names = [function.__name__ for function in checks.functions]
        assert len(set(names)) == len(names)
        assert all(function.__doc__ for function in checks.functions), checks.kind


@pytest.mark.slow
def test_tasks_pass_their_checks() -> None:
    for name, task in all_tasks().items():
        if name in {"nsmc-sample", "korquad-sample"} or not task.base:
            results = check_task(task, on_fail="return")
            assert failures(results) == set(), f"{name}: {[r for r in results if r.status == 'failed']}"


def test_data_of_official_tasks_pass_their_checks(real_data: Path) -> None:
    for name in ("klue-sts", "nsmc"):
        results = check_task(name, root=real_data)
        assert {result.name for result in results if result.status == "skipped"} == {"clusters_are_keys"}, name


def test_faults_of_a_task_are_found(subtests: pytest.Subtests) -> None:
    sample = get_task("nsmc-sample")

    def read_uncomposed(path: Path) -> list[Any]:
        import unicodedata

        return [replace(example, text=unicodedata.normalize("NFD", example.text)) for example in sample.read(path)]

    def read_anything(path: Path) -> list[Any]:
        return sample.read(path) if path.is_file() and path.stat().st_size > 5_000 else []

    def read_less(path: Path) -> list[Any]:
        return list(sample.read(path))[1:]

    cases: list[tuple[str, Task]] = [
        ("name_is_in_kebab_case", replace(sample, name="NSMC sample")),
        ("name_is_not_taken", replace(sample, name="klue-sts")),
        ("title_is_short", replace(sample, title=" ")),
        ("source_is_stated", replace(sample, source="")),
        ("licence_is_stated", replace(sample, licence="")),
        ("chance_is_a_fraction", replace(sample, chance=50.0)),
        ("metrics_are_metrics", replace(sample, metrics=sample.metrics * 2)),
        ("splits_have_sizes", replace(sample, num_examples={})),
        ("texts_are_composed", replace(sample, read=read_uncomposed)),
        ("missing_file_is_a_data_error", replace(sample, read=lambda path: path.read_bytes() and [])),
        ("evaluation_split_is_read", replace(sample, read=read_less)),
        ("paths_stay_under_the_root", replace(sample, files={"train": replace(sample.files["train"], path="../x")})),
        ("addresses_are_https", replace(sample, files={"train": replace(sample.files["train"], url="ftp://x")})),
    ]
    for name, task in cases:
        with subtests.test(name=name):
            assert only(name, task) == "failed"
    assert only("missing_file_is_a_data_error", replace(sample, read=read_anything)) == "passed"


def test_a_failed_check_raises_warns_or_is_returned(caplog: pytest.LogCaptureFixture) -> None:
    broken = replace(get_task("nsmc-sample"), chance=2.0)
    with pytest.raises(CheckFailedError, match=r"task nsmc-sample: chance_is_a_fraction: chance=2\.0; correct it"):
        check_task(broken)
    with caplog.at_level(logging.WARNING):
        check_task(broken, on_fail="warn")
    assert "chance_is_a_fraction" in caplog.text
    with pytest.raises(ValueError, match="on_fail"):
        check_task(broken, on_fail="no")  # type: ignore[arg-type]


def test_the_bundled_summarizer_passes_its_checks() -> None:
    check_summarizer(Summarizer.load())


def test_faults_of_a_summarizer_are_found(subtests: pytest.Subtests) -> None:
    own = Summarizer.load()

    class Shifted:
        """Returns offsets that are one too high."""

        def summarize(self, article: str, sentences: int = 3, **options: Any) -> Summary:
            found = own.summarize(article, sentences, **options)
            moved = tuple(replace(s, start=s.start + 1, end=s.end + 1) for s in found.sentences)
            return replace(found, sentences=moved)

        def summarize_many(self, articles: Any, sentences: int = 3, **options: Any) -> Iterator[Summary]:
            return iter([self.summarize(article, sentences, **options) for article in list(articles)[:3]])

    class Greedy(Shifted):
        """Returns everything, whatever is asked for."""

        def summarize(self, article: str, *_: Any, **__: Any) -> Summary:
            return own.summarize(article, 100)

        def summarize_many(self, articles: Any, sentences: int = 3, **options: Any) -> Iterator[Summary]:
            return own.summarize_many(articles, sentences, **options)

    for summarizer, expected in (
        (Greedy(), {"number_is_a_limit", "characters_are_a_limit", "invalid_numbers_are_refused"}),
    ):
        with subtests.test(name=type(summarizer).__name__):
            assert expected <= failures(check_summarizer(summarizer, on_fail="return"))
    results = [SUMMARIZER_CHECKS._result(check, Shifted()) for check in SUMMARIZER_CHECKS.functions[:5]]
    assert "sentences_are_slices" in failures(results)


def test_readers_of_ours_pass_their_checks(write: Write) -> None:
    rows = [{"제목": "새 다리가 열렸다", "본문": "주민들은 반겼다."}, {"제목": "비가 온다", "본문": "내일 비가 온다."}]
    content = {
        "jsonl": "\n".join(json.dumps(row, ensure_ascii=False) for row in rows),
        "json": json.dumps(rows, ensure_ascii=False),
        "csv": "제목,본문\n" + "\n".join(",".join(row.values()) for row in rows),
        "txt": "새 다리가 열렸다.\n\n비가 온다.\n",
    }
    for suffix, text in content.items():
        check_reader(FileReader(f".{suffix}", read_records), write(f"articles.{suffix}", text))


def test_faults_of_a_reader_are_found(write: Write, subtests: pytest.Subtests) -> None:
    example = write("articles.mine", "첫 기사\n둘째 기사\n")

    def read_at_once(path: Path) -> Any:
        return [Record(str(path), line, {"text": line}) for line in path.read_text(encoding="utf-8").splitlines()]

    def read_and_write(path: Path) -> Iterator[Record]:
        path.with_suffix(".index").write_text("", encoding="utf-8")
        yield from read_replacing(path)

    def read_replacing(path: Path) -> Iterator[Record]:
        if not path.is_file():
            raise DataError(path, "no such file", "check the path")
        for number, line in enumerate(path.read_bytes().decode("ascii", "replace").splitlines(), start=1):
            yield Record(f"{path}:{number}", line, {"text": line})

    for reader, expected in (
        (FileReader(".Mine", read_replacing), {"suffix_is_one"}),
        (FileReader(".csv", read_replacing), {"suffix_is_not_taken", "example_has_the_suffix"}),
        (FileReader(".mine", read_replacing), {"korean_survives"}),
        (FileReader(".mine", read_and_write), {"file_is_not_changed"}),
        (
            FileReader(".mine", read_at_once),
            {"reading_is_an_iterator", "records_say_where", "places_are_unique", "missing_file_is_a_data_error"},
        ),
    ):
        with subtests.test(expected=expected):
            assert expected <= failures(check_reader(reader, example, on_fail="return"))


def test_the_bundled_encoder_passes_its_checks() -> None:
    check_encoder("pressbert-mini")


def test_faults_of_an_encoder_are_found(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(bundled("encoder"), tmp_path / "encoder", dirs_exist_ok=True)
    (folder / "README.md").write_text("no head\n", encoding="utf-8")
    weights = load_file(folder / "model.safetensors")
    found = failures(check_encoder(folder, on_fail="return"))
    assert "card_has_a_licence" in found
    assert "weights_are_finite" not in found
    key = next(key for key in weights if key.endswith("LayerNorm.weight"))
    weights[key] = weights[key] * float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert {"weights_are_finite", "states_have_the_width"} <= failures(check_encoder(folder, on_fail="return"))
