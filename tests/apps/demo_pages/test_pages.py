"""The pages without a browser: what they show for what is given, in AppTest."""

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import apps.demo_pages.frame
import apps.demo_pages.leaderboard
from apps.demo import PAGES, with_root
from apps.demo_pages.comment_models import default_label, measured_on_news, on_news, what_it_read
from apps.demo_pages.comments import to_csv, to_jsonl, weight_marks
from apps.demo_pages.leaderboard import board_html, boards_of, reports_folder
from apps.stories.report import to_json
from benchmarks import comments as comments_benchmark
from corpora.foundation.errors import UsageError
from corpora.foundation.files import SAMPLE_ROOT, write_json
from corpora.foundation.texts import Texts
from downstream.encoders.folder import TASK_KEY, ModelFolder, find_models
from downstream.encoders.hub import bundled
from downstream.finetuning.result import score, write_result
from downstream.summarize import summarize
from downstream.task import get_task
from eval.board.rows import LeaderboardFile, build_table
from eval.cells.files import cell_path, find_cells

Open = Callable[..., AppTest]
HOSTILE = "<script>document.title='잡혔다'</script> 시의회가 예산을 의결했다. 주민은 반겼다. 하늘은 맑았다."


@pytest.fixture
def open_page(model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Return a function that opens a page with the tiny models, whatever else is bundled."""
    summarizer = apps.demo_pages.frame.BUNDLED / "summarizer"
    monkeypatch.setattr(apps.demo_pages.frame, "BUNDLED", tmp_path / "bundled")
    monkeypatch.setenv("PRESSBERT_REPORTS", str(tmp_path / "reports"))

    def open_app(name: str, *, models: bool = True, **query: str) -> AppTest:
        folders = [model_root, summarizer] if models else []
        monkeypatch.setenv("PRESSBERT_MODELS", os.pathsep.join(map(str, folders)))
        app = AppTest.from_string(f"from apps.demo import draw\ndraw({name!r})", default_timeout=120)
        for key, value in query.items():
            app.query_params[key] = value
        return run(app)

    return open_app


def run(app: AppTest) -> AppTest:
    """Run a page until no work is in progress."""
    app.run()
    for _ in range(600):
        if not app.get("progress"):
            break
        time.sleep(0.1)
        app.run()
    assert not app.exception, [(e.value, e.stack_trace) for e in app.exception]
    return app


def press(app: AppTest, label: str) -> AppTest:
    [button, *_] = [button for button in app.button if label in button.label]
    button.click()
    return run(app)


def page_html(app: AppTest) -> str:
    return "\n".join(str(element.proto.body) for element in app.get("html"))


def set_text(app: AppTest, key: str, text: str) -> None:
    app.get_by_key(key).set_value(text)


# --- all pages ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("language", ["한국어", "English"])
def test_every_page_opens_with_and_without_models(language: str, open_page: Open) -> None:
    for page, models in itertools.product(PAGES, (True, False)):
        app = open_page(page.name, models=models, lang=language)
        assert bool(re.search("[가-힣]", app.title[0].value)) == (language == "한국어"), page
        if not models and page.kind is not None:
            commands = [code.value for code in app.code]
            assert any(command.startswith(("make bundled", "python -m downstream")) for command in commands), page
            assert app.info, page


def test_the_address_restores_settings(open_page: Open) -> None:
    app = press(open_page("summary", sentences="2", focus="전광판"), "벼리시")
    assert app.get_by_key("sentences").value == 2
    assert page_html(app).count("<mark") == 2
    assert "전광판" in re.findall("<mark.*?</mark>", page_html(app))[0]


def test_visitors_from_elsewhere_name_no_folders(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps.demo_pages.frame, "is_served_here_only", lambda: False)
    with pytest.raises(KeyError):
        open_page("summary").get_by_key("folder")


def test_a_folder_can_be_added_and_a_wrong_one_is_an_error(
    open_page: Open, model_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps.demo_pages.frame, "is_served_here_only", lambda: True)
    app = open_page("answers", models=False)
    app.get_by_key("folder").set_value(str(model_root / "tiny-encoder" / "none"))
    assert "쓸 수 없습니다" in run(app).sidebar.error[0].value
    app.get_by_key("folder").set_value(str(model_root / "tiny-reader"))
    assert "tiny\\-reader" in run(app).sidebar.success[0].value
    assert app.get_by_key("reader-model").value == str(model_root / "tiny-reader")


# --- 기사 요약 ------------------------------------------------------------------------------------------------------


def test_a_pasted_article_is_summarised_and_escaped(open_page: Open) -> None:
    app = open_page("summary")
    set_text(app, "summary-text", HOSTILE)
    press(app, "요약하기")
    shown = page_html(app)
    assert "<script" not in shown
    assert shown.count("<mark") == 3
    expected = [s.text for s in summarize(HOSTILE, 3).sentences]
    assert app.code[0].value == "\n".join(expected)


def test_an_empty_and_an_endless_article_are_errors(open_page: Open) -> None:
    for text, expected in [(" \n", "비어 있습니다"), ("가" * 2_000_001, "너무 깁니다")]:
        app = open_page("summary")
        set_text(app, "summary-text", text)
        assert expected in press(app, "요약하기").error[0].value, expected
        assert "<mark" not in page_html(app), expected


def test_a_file_of_articles_can_be_looked_through_and_downloaded(open_page: Open) -> None:
    lines = [json.dumps({"id": f"n{k}", "text": f"{k}번 기사다. {HOSTILE}"}, ensure_ascii=False) for k in range(3)]
    app = open_page("summary")
    app.file_uploader[0].set_value(("기사.jsonl", "\n".join([*lines, "{"]).encode(), "application/jsonl"))
    run(app)
    assert "읽지 못한 레코드 1건" in app.expander[-1].label or any("1건" in e.label for e in app.expander)
    app.get_by_key("summary-which").set_value(2)
    assert "2번 기사다" in page_html(run(app))
    press(app, "3건 모두 요약하기")
    assert any("3건 내려받기" in button.label for button in app.get("download_button"))


def test_a_file_of_another_format_is_an_error(open_page: Open) -> None:
    app = open_page("summary")
    app.file_uploader[0].set_value(("![그림](http://evil.example).png", b"\x89PNG", "image/png"))
    [error] = run(app).error
    assert "읽을 수 없는 형식" in error.value
    assert "](" not in error.value


# --- 오늘의 뉴스 묶음 -----------------------------------------------------------------------------------------------


@pytest.fixture
def day(open_page: Open, titles: Callable[[int], list[str]]) -> AppTest:
    """Return the page with a day of titles, compared by their letters."""
    app = open_page("stories")
    app.get_by_key("embedder-model").set_value("letters")
    run(app).file_uploader[0].set_value(("오늘.txt", "\n".join(titles(40)).encode(), "text/plain"))
    return run(app)


def story_ids(app: AppTest) -> list[str]:
    return [button.key.removeprefix("pin-") for button in app.button if (button.key or "").startswith("pin-")]


def test_stories_are_merged_renamed_pinned_and_all_that_is_undone(day: AppTest) -> None:
    before, shown = story_ids(day), page_html(day)
    assert 3 <= len(before) < 10
    day.get_by_key("merge-chosen").set_value(before[:2])
    press(run(day), "합치기")
    assert sorted(story_ids(day)) == sorted(set(before) - {before[1]})
    day.get_by_key(f"name-{before[2]}").set_value("<b>새 이름</b>")
    day.get_by_key(f"save-{before[2]}").click()
    run(day)
    assert "&lt;b&gt;새 이름&lt;/b&gt;" in page_html(day)
    day.get_by_key(f"pin-{before[2]}").click()
    run(day)
    assert story_ids(day)[0] == before[2]
    for _ in range(3):
        day.get_by_key("undo").click()
        run(day)
    assert (story_ids(day), page_html(day)) == (before, shown)
    assert day.get_by_key("undo").disabled


def members(app: AppTest) -> dict[str, list[str]]:
    """Return the titles of each story on the page, by its id."""
    session = app.session_state["job-stories"][1].result
    articles = session.clusters.articles
    return {story.id: [articles[member.index].title for member in story.members] for story in session.clusters.stories}


def test_stories_are_split_and_articles_taken_out_and_moved_and_all_that_is_undone(day: AppTest) -> None:
    before, shown = members(day), page_html(day)
    first, second, *_ = before
    day.get_by_key(f"edit-{first}").click()
    run(day).get_by_key(f"split-{first}").click()
    parts = members(run(day))
    [made] = set(parts) - set(before)
    assert sorted(parts[first] + parts[made]) == sorted(before[first])
    assert "나누기" in day.get_by_key("undo").label
    day.get_by_key("undo").click()
    assert members(run(day)) == before

    assert list(day.get_by_key(f"articles-{first}").options) == before[first]
    session = day.session_state["job-stories"][1].result
    index = session.stories.members(first)[0]
    title = session.clusters.articles[index].title
    # Into another story, out of all, and into a story of its own.
    for action, target in (("move", second), ("take", ""), ("move", "")):
        day.get_by_key(f"articles-{first}").set_value([index])
        day.get_by_key(f"target-{first}").set_value(target)
        run(day).get_by_key(f"{action}-{first}").click()
        after = members(run(day))
        assert title not in after[first]
        holders = [id_ for id_, titles in after.items() if title in titles]
        expected = {"move": [second] if target else sorted(set(after) - set(before)), "take": []}[action]
        assert holders == expected, (action, target)
        session = day.session_state["job-stories"][1].result
        report = to_json(session.report("오늘"))
        assert [
            story["id"] for story in report["stories"] if index in [member["index"] for member in story["members"]]
        ] == expected
        assert (index in [article["index"] for article in report["noise"]]) == (action == "take")
        assert len(session.map_positions()) == len(after)
        day.get_by_key("undo").click()
        assert members(run(day)) == before, action
    day.get_by_key(f"edit-{first}").click()
    assert page_html(run(day)) == shown
    assert day.get_by_key("undo").disabled


def test_edits_are_kept_while_other_views_and_pages_are_open(day: AppTest) -> None:
    first, *_ = before = members(day)
    session = day.session_state["job-stories"][1].result
    every = session.stories.members(first)
    day.get_by_key(f"edit-{first}").click()
    run(day).get_by_key(f"articles-{first}").set_value(every)
    run(day).get_by_key(f"take-{first}").click()
    assert set(members(run(day))) == set(before) - {first}
    for view in ("map", "time", "copies", "list"):
        day.get_by_key("view").set_value(view)
        run(day)
        assert set(members(day)) == set(before) - {first}, view
    day.get_by_key("undo").click()
    assert members(run(day)) == before


def test_an_impossible_edit_changes_nothing(day: AppTest) -> None:
    session = day.session_state["job-stories"][1].result
    first, second, *_ = members(day)
    of_second = session.stories.members(second)
    for change in (
        lambda: session.take_out(first, of_second),
        lambda: session.take_out(first, []),
        lambda: session.take_out("s999", of_second),
        lambda: session.move(first, of_second, second),
        lambda: session.move(first, session.stories.members(first), "s999"),
        lambda: session.move(first, of_second, ""),
        lambda: session.split(first, 1),
        lambda: session.split(first, 10_000),
    ):
        before = (list(session.stories.story_of), dict(session.stories.stories), session.last_edit)
        with pytest.raises(UsageError):
            change()
        assert (list(session.stories.story_of), dict(session.stories.stories), session.last_edit) == before


def test_views_of_a_day(day: AppTest) -> None:
    for view, expected in (("map", 1), ("time", 0), ("copies", 0)):
        day.get_by_key("view").set_value(view)
        run(day)
        assert len(day.get("vega_lite_chart") or day.get("arrow_vega_lite_chart")) == expected


def test_stories_are_found_by_words(day: AppTest) -> None:
    day.get_by_key("find").set_value("우박")
    assert page_html(run(day)).count('class="pb-story"') == 1
    day.get_by_key("find").set_value("없는말")
    assert "찾는 말이 든 묶음이 없습니다" in run(day).info[-1].value


def test_a_single_title_is_an_error(open_page: Open) -> None:
    app = open_page("stories")
    app.file_uploader[0].set_value(("오늘.txt", "제목 하나".encode(), "text/plain"))
    assert "둘 이상" in run(app).error[0].value


# --- 댓글·감성 분석 -------------------------------------------------------------------------------------------------


def test_a_comment_gets_its_probabilities_and_weights(open_page: Open) -> None:
    app = open_page("comments", threshold="0.05")
    figures = {metric.label: metric.value for metric in app.metric}
    assert figures["재현율"].endswith("%")
    assert figures["탐지 건수"].endswith("/ 140")
    set_text(app, "comment-text", "<i>정말</i> 좋았다")
    press(app, "분석하기")
    assert "<i>" not in page_html(app)
    assert sum(float(value) for value in re.findall(r'pb-value">([\d.]+)%', page_html(app))[-2:]) == pytest.approx(
        100, abs=0.2
    )


def test_the_page_says_what_the_model_has_read_and_looks_for_what_is_negative(open_page: Open) -> None:
    app = open_page("comments")
    assert app.get_by_key("label").value == "negative"
    # The tiny model is not the one that was measured.
    assert "영화평만" in app.info[0].value
    assert "뉴스 댓글에서 잰 값은 없습니다" in app.info[0].value
    task = get_task("nsmc")
    assert default_label(task, ("negative", "positive")) == "negative"
    assert default_label(get_task("hate-trainsplit"), ("none", "offensive", "hate")) == "hate"
    assert default_label(task, ("가", "나")) == "나"
    assert "KLUE-TC" in what_it_read(Texts("ko", "demo"), get_task("klue-tc"))


def test_the_first_entry_whose_model_is_there_is_the_default(
    model_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of comments becomes the default by its entry, wherever its folder stands among the others."""
    shutil.copytree(model_root / "tiny-classifier", tmp_path / "zz-comments")
    config = json.loads((tmp_path / "zz-comments" / "config.json").read_text())
    labels = get_task("hate").family.head_config()
    (tmp_path / "zz-comments" / "config.json").write_text(json.dumps(config | labels | {TASK_KEY: "hate-trainsplit"}))
    monkeypatch.setattr(apps.demo_pages.frame, "BUNDLED", model_root)
    monkeypatch.setenv("PRESSBERT_MODELS", str(tmp_path / "zz-comments"))
    found = [model for model in find_models([model_root, tmp_path / "zz-comments"]) if model.kind == "classifier"]
    assert [model.name for model in found] == ["tiny-classifier", "zz-comments"]
    comments = next(page for page in PAGES if page.name == "comments")
    ranked = sorted(found, key=lambda model: apps.demo_pages.frame._rank(model, comments.tasks))
    assert [model.name for model in ranked] == ["zz-comments", "tiny-classifier"]


def test_what_was_measured_on_news_is_shown_for_these_very_weights_alone(tmp_path: Path) -> None:
    [found] = measured_on_news()
    folder = ModelFolder(bundled("classifier"))
    if found.model == folder.digest():
        assert on_news(folder, found.label) == found
    assert on_news(folder, "positive") is None
    (tmp_path / "config.json").write_text("{}")
    assert on_news(ModelFolder(tmp_path), found.label) is None
    # Recall falls with the threshold, and no figure is a share of more than there is.
    shares = [point.recall for point in found.points]
    assert shares == sorted(shares, reverse=True)
    assert all(0 < point.num_right <= point.num_positive == found.num_positive for point in found.points)
    assert found.at(0.5).threshold == 0.5
    assert found.num_comments == get_task("hate").num_examples["train"]


@pytest.mark.slow
@pytest.mark.real_data
def test_what_the_page_says_of_news_comments_is_measured_again(real_data: Path) -> None:
    found = comments_benchmark.measure(bundled("classifier"), real_data)
    assert [found] == list(measured_on_news())


def test_the_words_that_weigh_most_are_signed_and_light_ones_left_alone() -> None:
    marks = weight_marks(Texts("ko", "demo"), [(0, 2, 2.0), (3, 5, -1.0), (6, 8, 0.05)])
    assert [(m.start, m.kind, m.label, m.strength) for m in marks] == [(0, "for", "+", 1.0), (3, "against", "−", 0.5)]
    assert weight_marks(Texts("ko", "demo"), []) == []


def test_tables_for_excel_compute_nothing() -> None:
    rows = (["=1+1", "좋다"], ["가", "나"], np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([True, False]))
    assert to_csv(*rows).decode("utf-8-sig").splitlines() == [
        "text,flagged,가,나",
        "'=1+1,1,0.250000,0.750000",
        "좋다,0,1.000000,0.000000",
    ]
    assert json.loads(to_jsonl(*rows).splitlines()[0]) == {
        "text": "=1+1",
        "flagged": True,
        "scores": {"가": 0.25, "나": 0.75},
    }


def test_a_higher_threshold_flags_less(open_page: Open) -> None:
    flagged = []
    for threshold in ("0.05", "0.5", "0.95"):
        [value] = [m.value for m in open_page("comments", threshold=threshold).metric if m.label == "탐지 건수"]
        flagged.append(int(value.split(" / ")[0]))
    assert flagged == sorted(flagged, reverse=True)


def test_many_comments_make_a_table(open_page: Open) -> None:
    app = open_page("comments", mode="여러 건")
    app.file_uploader[0].set_value(("댓글.csv", "본문\n=1+1\n좋아요\n".encode(), "text/csv"))
    table = run(app).dataframe[0].value
    assert sorted(table["댓글"]) == ["=1+1", "좋아요"]
    assert len(app.get("download_button")) == 2


def test_the_column_of_the_comments_can_be_chosen(open_page: Open) -> None:
    app = open_page("comments", mode="여러 건")
    rows = "번호,댓글,답글\n1,좋아요,싫어요\n2,최고다,별로다\n"
    app.file_uploader[0].set_value(("댓글.csv", rows.encode(), "text/csv"))
    assert sorted(run(app).dataframe[0].value["댓글"]) == ["좋아요", "최고다"]
    [field] = [box for box in app.selectbox if box.label == "댓글이 든 열"]
    assert (field.options, field.value) == (["번호", "댓글", "답글"], "댓글")
    field.set_value("답글")
    assert sorted(run(app).dataframe[0].value["댓글"]) == ["별로다", "싫어요"]


def test_columns_that_are_not_recognized_are_named_and_offered(open_page: Open) -> None:
    app = open_page("comments", mode="여러 건")
    app.file_uploader[0].set_value(("댓글.csv", "가,나\n좋아요,싫어요\n".encode(), "text/csv"))
    run(app)
    assert any("'가', '나'" in error.value for error in app.error)
    assert not app.dataframe
    [field] = [box for box in app.selectbox if box.label == "댓글이 든 열"]
    field.set_value("나")
    assert list(run(app).dataframe[0].value["댓글"]) == ["싫어요"]


# --- 질문과 답, 빈칸 채우기 -----------------------------------------------------------------------------------------


def test_a_question_is_answered_inside_its_passage(open_page: Open) -> None:
    app = open_page("answers")
    set_text(app, "answers-passage", HOSTILE)
    set_text(app, "answers-question", "누가 예산을 의결했나?")
    shown = page_html(press(app, "답 찾기"))
    assert "<script" not in shown
    assert ('<mark class="pb-answer"' in shown) != ("답이 없음" in shown)


def test_without_a_model_the_likeliest_sentence_is_marked_and_a_command_shown(open_page: Open) -> None:
    app = open_page("answers", models=False)
    assert app.get_by_key("reader-model").value == "letters"
    set_text(app, "answers-passage", "시의회가 예산을 의결했다. 시장은 <b>올해</b> 도로를 넓힌다고 말했다.")
    set_text(app, "answers-question", "도로를 언제 넓히나?")
    shown = page_html(press(app, "답 찾기"))
    assert '<mark class="pb-answer"' in shown
    assert "&lt;b&gt;올해&lt;/b&gt; 도로를" in shown.split('<mark class="pb-answer"')[1]
    assert "<b>" not in shown
    assert any("모델 없이" in caption.value for caption in app.caption)
    assert "downstream.finetune klue-mrc" in app.code[0].value
    set_text(app, "answers-question", "why?")
    assert "답이 없음" in page_html(press(app, "답 찾기"))


def test_a_missing_passage_or_question_is_an_error(open_page: Open) -> None:
    for passage, question, expected in [("", "누가?", "답을 찾을 글이"), ("글이다.", " ", "질문이")]:
        app = open_page("answers")
        set_text(app, "answers-passage", passage)
        set_text(app, "answers-question", question)
        assert expected in press(app, "답 찾기").error[0].value, passage


def test_blanks_are_filled_with_probabilities(open_page: Open) -> None:
    app = open_page("blanks", candidates="5")
    set_text(app, "blanks-text", "<b>시의회</b>가 [MASK]을 □했다.")
    shown = page_html(press(app, "채우기"))
    assert "<b>" not in shown
    assert shown.count("pb-name") == 10
    assert [header.value for header in app.subheader if "빈칸" in header.value] == ["빈칸 1", "빈칸 2"]


def test_a_sentence_without_blank_is_an_error(open_page: Open) -> None:
    app = open_page("blanks")
    set_text(app, "blanks-text", "빈칸이 없는 문장")
    assert "빈칸이 없습니다" in press(app, "채우기").error[0].value


# --- 교열 -----------------------------------------------------------------------------------------------------------


def test_errors_are_marked_and_corrected(open_page: Open) -> None:
    app = open_page("writing")
    set_text(app, "writing-text", "<b>이렇게</b> 하면 안되요.\n몇일 뒤에 봐요.")
    shown = page_html(press(app, "교열하기"))
    assert "<b>" not in shown
    assert "안 돼요" in shown
    assert "며칠 뒤에" in shown
    assert "고칠 곳 2군데" in app.caption[0].value


# --- 모델 비교 ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Write a leaderboard of two models of the sample, one of which is right but for four reviews."""
    task = get_task("nsmc-sample")
    split = task.read_split("test", SAMPLE_ROOT)
    turned = {"negative": "positive", "positive": "negative"}
    for model, wrong in (("good", range(4)), ("<b>bad</b>", range(2, 70))):
        cell = score(
            task,
            split,
            [turned[gold] if k in wrong else gold for k, gold in enumerate(split.golds)],
            model=model,
            seed=0,
            data_sha256=f"train+{split.sha256}",
            recipe={},
            recipe_sha256="r",
            train_s=0,
            eval_s=0,
            device="cpu",
        )
        write_result(cell_path(tmp_path / "reports", task.name, model, 0), cell)
    table = build_table(find_cells(tmp_path / "reports")[0], [])
    board = LeaderboardFile(schema=1, created="2026-01-02T03:04:05+00:00", manifest={}, rows=table.rows)
    write_json(tmp_path / "reports" / "leaderboard.json", board.model_dump(by_alias=True))
    return tmp_path / "reports"


def test_the_leaderboard_is_shown_and_filtered(reports: Path, open_page: Open) -> None:
    assert reports.is_dir()
    app = open_page("leaderboard")
    shown = page_html(app)
    assert "97.14" in shown
    assert "91.29" in shown  # kpfBERT, published
    assert "&lt;b&gt;bad" in shown
    assert "<b>bad" not in shown
    app.get_by_key("sources").set_value(["measured"])
    assert "91.29" not in page_html(run(app))
    app.get_by_key("models").set_value(["good"])
    assert "&lt;b&gt;bad" not in page_html(run(app)).split('class="pb-mistake"')[0]


def test_without_reports_of_ones_own_the_report_of_the_project_is_shown(
    open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "아직 측정한 결과가 없어" in open_page("leaderboard").info[0].value
    monkeypatch.delenv("PRESSBERT_REPORTS")
    monkeypatch.chdir(tmp_path)
    for folder in ("project", "reports", "named"):
        (tmp_path / folder).mkdir()
        monkeypatch.setattr(apps.demo_pages.leaderboard, "PROJECT_REPORTS", tmp_path / "project")
        (tmp_path / folder / "leaderboard.json").write_text("{}")
        if folder == "named":
            monkeypatch.setenv("PRESSBERT_REPORTS", str(tmp_path / "named"))
        assert reports_folder().name == folder


def test_the_project_s_report_has_measured_scores_before_published_ones() -> None:
    folder = apps.demo_pages.leaderboard.PROJECT_REPORTS
    if not (folder / "leaderboard.json").is_file():
        pytest.skip("an installed package has no docs")
    board = LeaderboardFile.model_validate_json((folder / "leaderboard.json").read_text(encoding="utf-8"))
    boards = boards_of(board.rows)
    assert list(boards) == ["official", "substitutes"]
    shown = board_html(Texts("ko", "demo"), boards["official"])
    measured, published = (shown.index(Texts("ko", "report.block")(name)) for name in ("measured", "reported"))
    assert 0 < measured < published
    assert Texts("ko", "report.block")("on_other") not in shown
    # No figure of the report is in neither table, or in both.
    figures = [row for found in boards.values() for _, lines in found.blocks for line in lines for row in line.rows]
    assert sum(row is not None for row in figures) == len(board.rows)


def test_pages_name_their_root() -> None:
    page = with_root(b"<html><head><title>x</title></head></html>").decode()
    [pattern] = re.findall(r"replace\(/(.*?)/,", page)
    pattern = pattern.replace("\\/", "/")
    for path, root in (
        ("/", "/"),
        ("/stories", "/"),
        ("/stories/", "/"),
        ("/below/comments", "/below/"),
        ("/below/", "/below/"),
    ):
        assert re.sub(pattern, "/", path) == root, path
    assert with_root(b"no page") == b"no page"


def test_columns_are_ordered_as_in_the_published_comparison(open_page: Open) -> None:
    shown = page_html(open_page("leaderboard"))
    columns = re.findall(r'<th scope="col">([^<]+)', shown)[1:]
    assert [column.split()[0] for column in columns][:3] == ["NSMC", "KLUE-NLI", "KLUE-STS"]


def test_mistakes_are_looked_through_and_compared(reports: Path, open_page: Open) -> None:
    assert reports.is_dir()
    app = open_page("leaderboard")
    app.get_by_key("cell").set_value("good · seed 0")
    assert page_html(run(app)).count('class="pb-mistake"') == 4
    [other] = [name for name in app.get_by_key("other").options if "bad" in name]
    app.get_by_key("other").set_value(other)
    run(app).get_by_key("otherright").set_value(True)
    assert page_html(run(app)).count('class="pb-mistake"') == 2


def test_a_damaged_leaderboard_is_an_error(reports: Path, open_page: Open) -> None:
    (reports / "leaderboard.json").write_text("{")
    app = open_page("leaderboard")
    assert "읽지 못했습니다" in app.error[0].value
    assert "91.29" in page_html(app)
