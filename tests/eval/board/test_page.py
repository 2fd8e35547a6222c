"""The report's page and Markdown: that all is in them in two languages, that nothing is markup, and that it works."""

import html
import itertools
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData
from markdown_it import MarkdownIt

from corpora.foundation.texts import Language, Texts
from corpora.overlap import MEASURES
from downstream.task import get_task
from eval.board.comparison import Comparison
from eval.board.disagreement import Answer, Disagreement, DisputedExample
from eval.board.markdown import to_markdown
from eval.board.model_index import to_model_index, write_model_index
from eval.board.page import SECTIONS, to_html, write_leaderboard
from eval.board.report import Evidence, Report
from eval.board.rows import CleanFigure, LeaderboardFile, NoiseFigure, Row, read_reported
from eval.board.table import model_title, percent
from eval.cells.measurements import CurveFile
from eval.contamination.files import Counts, Pair
from eval.contestants.curves import CurvePoint
from eval.measures.noise import NOISES

ORDER = ("nsmc", "klue-nli", "klue-sts", "korquad", "klue-mrc")
MODELS = ("majority", "tfidf", "pressbert-scratch", "pressbert-small")
SCORES = {"majority": 0.5, "tfidf": 0.83, "pressbert-scratch": 0.82, "pressbert-small": 0.87}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"' & {{ 7*7 }}"


def rows_of(task: str) -> list[Row]:
    """Return every figure of four models on a task, with all that can be measured beside it."""
    metrics = get_task(task).metrics
    rows = []
    for k, model in enumerate(MODELS):
        for metric in metrics:
            value = SCORES[model] - 0.01 * len(task)
            noise = [
                NoiseFigure(
                    noise=name,
                    rate=rate,
                    num_examples=2000,
                    altered=0.9,
                    value=value - 0.05 * j,
                    drop=0.05 * j,
                    drop_ci95=(0.05 * j - 0.01, 0.05 * j + 0.01) if metric is metrics[0] else None,
                )
                for j, (name, rate) in enumerate((name, rate) for name, kind in NOISES.items() for rate in kind.rates)
            ]
            clean = [
                CleanFigure(
                    corpus="train",
                    source="split",
                    num_touched=3512,
                    value=value - 0.004,
                    ci95=(value - 0.01, value + 0.002),
                    touched_value=0.93,
                )
            ]
            rows.append(
                Row(
                    model=model,
                    task=task,
                    metric=metric.key,
                    value=value,
                    ci95=(value - 0.006, value + 0.006),
                    seeds=3 if k > 1 else 1,
                    commit="a" * 40,
                    settings={"epochs": 3} if k else {},
                    num_clusters=140 if task == "korquad-devsplit" else None,
                    std=0.0021 if k > 1 else None,
                    rank=((4, 4), (2, 3), (2, 3), (1, 1))[k] if metric is metrics[0] else None,
                    num_examples=50_000,
                    split="test",
                    data_sha256="a" * 64 + "+" + "b" * 64,
                    num_parameters=(1, 412_345, 1_500_000, 7_200_000)[k],
                    train_s=(0.1, 42.0, 900.0, 9000.0)[k],
                    size_bytes=(None, None, 6_100_000, 29_000_000)[k],
                    latency_ms=(0.02, 0.4, 2.1, 8.4)[k],
                    sentences_per_s=(90_000.0, 4000.0, 700.0, 140.0)[k],
                    cpu_share=0.4 if k == 3 else 0.99,
                    noise=noise,
                    clean=clean if task == "nsmc" and metric is metrics[0] else [],
                )
            )
    return rows


def comparisons_of(task: str) -> list[Comparison]:
    pairs = itertools.combinations(sorted(MODELS, key=lambda model: -SCORES[model]), 2)
    return [
        Comparison(
            task=task,
            metric=get_task(task).metrics[0].key,
            a=a,
            b=b,
            value_a=SCORES[a],
            value_b=SCORES[b],
            seeds_a=3,
            seeds_b=1,
            difference=SCORES[a] - SCORES[b],
            ci95=(SCORES[a] - SCORES[b] - 0.01, SCORES[a] - SCORES[b] + 0.01),
            p_examples=0.0002,
            p=0.0002 if SCORES[a] - SCORES[b] > 0.02 else 0.31,
            p_adjusted=0.0012 if SCORES[a] - SCORES[b] > 0.02 else 0.62,
            verdict="better" if SCORES[a] - SCORES[b] > 0.02 else "tie",
        )
        for a, b in pairs
    ]


def dispute(task: str, number: int, **more: str) -> DisputedExample:
    texts = {"text": f"배우들 연기가 정말 좋았던 영화 {number}번. 다시 보고 싶다."} | more
    right = number % len(MODELS)
    answers = [
        Answer(model=m, text="positive" if k == right else "negative", quality=float(k == right))
        for k, m in enumerate(MODELS)
    ]
    return DisputedExample(id=f"{task}-{number}", texts=texts, gold="positive", answers=answers)


def evidence() -> Evidence:
    counts = Counts(
        num_applicable=50_000,
        num_touched=3512,
        num_touched_short=3300,
        share=0.0702,
        fields={"text": 3512},
        num_documents=9,
    )
    none = counts.model_copy(update={"num_applicable": 0, "share": None, "num_touched": 0})
    measures = {measure: none if measure == "ngram" else counts for measure in MEASURES}
    facts: dict[str, Any] = {"schema": 1, "split": "test", "num_examples": 50_000, "measures": measures}
    untouched = facts | {"measures": dict.fromkeys(MEASURES, none)}
    pairs = [
        Pair(task="klue-sts", corpus="open_korean", source="corpus", **untouched),
        Pair(task="nsmc", corpus="train", source="split", hits="contamination/nsmc/train.hits.tsv", **facts),
        Pair(
            task="nsmc", corpus="open_korean", source="corpus", hits="contamination/nsmc/open_korean.hits.tsv", **facts
        ),
    ]
    curves = [
        CurveFile(
            schema=1,
            task="nsmc",
            model=model,
            seed=seed,
            recipe_sha256="",
            points=[
                CurvePoint(step=100 * k, epoch=k / 10, loss=0.3 + (0.4 + 0.02 * seed) * float(np.exp(-k / 8)))
                for k in range(1, 31)
            ],
        )
        for model in MODELS[2:]
        for seed in range(3)
    ]
    disputed = [
        Disagreement(
            task=task,
            source="Someone 2020 (CC BY 4.0)",
            num_examples=50_000,
            num_disputed=7_123,
            examples=[dispute(task, number) for number in range(12)],
        )
        for task in ("nsmc", "klue-nli-devsplit")
    ]
    return Evidence(disputed, pairs, curves)


def report(*more: Row, disputed: Sequence[DisputedExample] = ()) -> Report:
    tasks = ("nsmc", "klue-nli-devsplit", "klue-sts-devsplit", "korquad-devsplit")
    manifest = {
        "versions": {"python": "3.11.9", "torch": "2.10.0"},
        "git": "abc",
        "device": "cpu",
        "cpu": "Test CPU",
        "experiments": [{"task": "nsmc", "model": "tfidf", "seeds": [0], "recipe": {"note": HOSTILE}}],
    }
    file = LeaderboardFile(
        schema=1,
        created="2026-01-02T03:04:05+00:00",
        manifest=manifest,
        rows=[*(row for task in tasks for row in rows_of(task)), *more, *read_reported()],
        comparisons=[found for task in tasks for found in comparisons_of(task)],
    )
    proof = evidence()
    if disputed:
        proof = replace(proof, disagreements=[proof.disagreements[0].model_copy(update={"examples": list(disputed)})])
    return Report(file, ORDER, proof)


FULL = report()
BAD = Row(model="<script>alert(3)</script>", task="nsmc", metric="accuracy", status="failed", reason=HOSTILE)


class Page(HTMLParser):
    """Tags with attributes, and the text in each language; every tag must be closed by its own."""

    VOID = frozenset({"meta", "input", "line", "rect", "circle", "path", "polyline"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {"ko": [], "en": []}
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self._open.append((tag, dict(attrs).get("class") or ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if any(tag in {"script", "style", "option"} for tag, _ in self._open):
            return  # the script of the page writes options in the reader's language
        of = {kind for _, kind in self._open} & {"ko", "en"}
        for language in of or self.texts:
            self.texts[language].append(data)

    def text(self, language: str) -> str:
        return " ".join(" ".join(self.texts[language]).split())


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_outside() -> None:
    text = to_html(FULL)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not {"link", "iframe", "img", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"src", "srcset", "action", "xlink:href"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"url\(|@import|javascript:|fetch\(|XMLHttp", text)


def test_nothing_that_goes_in_is_markup() -> None:
    bad = dispute("nsmc", 1, text=HOSTILE, pair=HOSTILE)
    bad = bad.model_copy(
        update={"id": HOSTILE, "gold": HOSTILE, "answers": [Answer(model=HOSTILE, text=HOSTILE, quality=1)]}
    )
    page = Page(to_html(report(BAD, disputed=[bad])))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    for language in ("ko", "en"):
        assert " ".join(HOSTILE.split()) in page.text(language)
        assert BAD.model in page.text(language)
    models = next(a["data-models"] for _, a in page.tags if "data-models" in a)
    assert json.loads(models) == [HOSTILE]


def test_links_within_the_page_have_their_targets_and_every_section_is_there() -> None:
    page = Page(to_html(FULL))
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert {a["href"].removeprefix("#") for tag, a in page.tags if tag == "a"} == set(SECTIONS) <= ids


def test_each_language_has_all_texts_and_figures() -> None:
    page = Page(to_html(FULL))
    languages: tuple[Language, ...] = ("ko", "en")
    for language, other in zip(languages, languages[::-1], strict=True):
        texts, text = Texts(language, "report"), page.text(language)
        for key in ("title", "official", "substitutes", *(f"section.{section}" for section in SECTIONS)):
            assert texts(key) in text, key
        for section in (name for name in SECTIONS if name != "table"):
            assert texts(f"section_text.{section}") in text, section
            assert texts(f"section_text.{section}") not in page.text(other), section
        for row in FULL.file.rows:
            if row.value is not None:
                assert percent(row.value) in text
        for found in FULL.file.comparisons:
            assert f"{100 * found.difference:+.2f}" in text
        for dispute_of in FULL.evidence.disagreements[0].examples:
            assert dispute_of.texts["text"] in text
        for words in ("2026-01-02T03:04:05+00:00", "Test CPU", "3,512 (7.02%)", "8.40 ms *"):
            assert words in text, words
        assert {"ko": "겹침 제외 78.60", "en": "without overlap 78.60"}[language] in text


def test_english_has_no_korean_but_names_and_examples() -> None:
    """What is left in Korean on the English page comes from the data: titles of tasks, examples, notes on figures."""
    text = Page(to_html(FULL)).text("en")
    for known in [
        *(row.note for row in FULL.file.rows if row.note),
        *(get_task(row.task).title for row in FULL.file.rows),
        *(e.texts["text"] for e in FULL.evidence.disagreements[0].examples),
        "한국어",
    ]:
        text = text.replace(known, "")
    left = set(re.findall(r"[가-힣][가-힣 ]*", text))
    assert left <= {"리더보드 ", "배우들 연기가 정말 좋았던 영화 "}, left  # the document's title, and examples


def test_substitutes_are_in_a_table_of_their_own_under_their_own_names() -> None:
    assert {column.task for column in FULL.official.columns} >= {"nsmc", "klue-nli"}
    assert {block for block, _ in FULL.official.blocks} == {"measured", "reported"}
    assert [block for block, _ in FULL.substitutes.blocks] == ["on_other"]
    names = {column.task for column in FULL.substitutes.columns}
    assert names == {"klue-nli-devsplit", "klue-sts-devsplit", "korquad-devsplit"}
    assert "KLUE-NLI (개발셋 분할) Acc" in Page(to_html(FULL)).text("ko")
    assert "klue-nli-devsplit Acc" in Page(to_html(FULL)).text("en")


def unfolded(text: str) -> str:
    """Return a text without what is folded in it."""
    while "<details>" in text:
        text = re.sub(r"<details>((?!<details>).)*?</details>", "", text, flags=re.DOTALL)
    return text


def test_everything_but_the_tables_of_scores_is_folded() -> None:
    for text in (to_html(FULL), to_markdown(FULL, "ko"), to_markdown(FULL, "en")):
        assert "<details open" not in text
        assert "Test CPU" not in unfolded(text) != text
    assert len(tables_in(unfolded(to_markdown(FULL, "ko")))) == 2
    assert unfolded(to_html(FULL)).count("<table") == 3  # which model for which task stands above them


def charts(page: str) -> dict[str, ET.Element]:
    elements = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)]  # noqa: S314 - ours
    found = {element.attrib["aria-label"]: element for element in elements}
    assert len(found) == len(elements)
    return found


def test_scores_stand_against_latency_the_quick_to_the_left_and_the_good_above() -> None:
    chart = charts(to_html(FULL))["NSMC Acc · ms"]
    places = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in chart.iter("circle")]
    assert len(places) == len(MODELS)
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    order = sorted(range(len(MODELS)), key=lambda k: places[k][1])
    assert [MODELS[k] for k in order] == ["pressbert-small", "tfidf", "pressbert-scratch", "majority"]
    assert [c.attrib["class"].endswith("busy") for c in chart.iter("circle")] == [False, False, False, True]
    _, _, width, height = map(float, chart.attrib["viewBox"].split())
    assert all(0 < x < width and 0 < y < height for x, y in places)


def test_a_learning_curve_falls_as_its_losses_do() -> None:
    chart = charts(to_html(FULL))["NSMC · loss"]
    lines = list(chart.iter("polyline"))
    assert len(lines) == 6
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert points == sorted(points)
        assert [y for _, y in points] == sorted(y for _, y in points)  # down the page


def test_a_report_of_figures_alone_has_no_empty_sections() -> None:
    bare = Report(FULL.file.model_copy(update={"rows": [BAD], "comparisons": []}))
    page = Page(to_html(bare))
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert ids & set(SECTIONS) == {"table", "forest", "manifest"}
    assert Texts("ko", "report")("section.noise") not in to_markdown(bare, "ko")


# --- Markdown -------------------------------------------------------------------------------------------------------


def tables_in(text: str) -> list[list[list[str]]]:
    tables: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token, content in itertools.pairwise(tokens):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in {"th_open", "td_open"}:
            tables[-1][-1].append(content.content)
    return tables


def test_markdown_has_the_same_tables_in_both_languages() -> None:
    korean, english = (tables_in(to_markdown(FULL, language)) for language in ("ko", "en"))
    shapes = [[(len(table), len(table[0])) for table in tables] for tables in (korean, english)]
    assert shapes[0] == shapes[1]
    assert all(len({len(row) for row in table}) == 1 for table in korean + english)
    for table in korean:
        assert not any("|" in cell.replace("\\|", "") for row in table for cell in row)
    languages: tuple[Language, ...] = ("ko", "en")
    headings = [re.findall(r"<summary><b>(.*)</b>", to_markdown(FULL, language)) for language in languages]
    assert len(headings[0]) == len(headings[1])
    for language, found in zip(languages, headings, strict=True):
        assert Texts(language, "report")("section.noise") in found


def test_markdown_tells_what_the_page_tells() -> None:
    text = to_markdown(FULL, "ko")
    for row in FULL.file.rows:
        if row.value is not None:
            assert percent(row.value) in text
        for found in row.noise[:1]:
            assert found.value is None or percent(found.value) in text
    for words in ("3,512 (7.02%)", "8.40 ms *", "7,123", "contamination/nsmc/train.hits.tsv", "0.653 →", "Test CPU"):
        assert words in text, words


def test_pairs_without_overlap_are_one_row_by_task_and_none_in_the_table_of_overlaps() -> None:
    bare = Report(FULL.file, FULL.order, replace(FULL.evidence, contamination=FULL.evidence.contamination[:1]))
    for report, num_rows in ((FULL, 2), (bare, 0)):
        text = to_markdown(report, "en")
        assert text.count("[tsv](") == to_html(report).count(".hits.tsv") == num_rows
        assert ["KLUE-STS", "open_korean"] in [row for table in tables_in(text) for row in table]
        assert Texts("ko", "report")("contamination.clean_text") in to_html(report)


# --- model-index ----------------------------------------------------------------------------------------------------


def test_a_model_index_comes_back_from_huggingface_hub_as_it_was_written(tmp_path: Path) -> None:
    rows = [row for row in FULL.file.rows if row.source == "measured"]
    paths = write_model_index(tmp_path, rows)
    assert [path.name for path in paths] == [f"{model}.yml" for model in MODELS]
    for model, path in zip(MODELS, paths, strict=True):
        data = ModelCardData(**yaml.safe_load(path.read_text(encoding="utf-8")))
        assert data.model_name == model
        own = [row for row in rows if row.model == model]
        assert data.eval_results is not None
        assert [(e.dataset_type, e.metric_type, e.metric_value, e.dataset_split) for e in data.eval_results] == [
            (row.task, row.metric, round(row.value or 0, 6), row.split) for row in own
        ]
        assert data.eval_results[0].metric_args is not None
        assert data.eval_results[0].metric_args["ci95"] == list(own[0].ci95 or ())
        card = ModelCard(f"---\n{path.read_text(encoding='utf-8')}---\n\n# {model}\n")
        assert card.data.eval_results == data.eval_results
        assert yaml.safe_load(card.data.to_yaml()) == yaml.safe_load(path.read_text(encoding="utf-8"))


def test_a_model_index_holds_measured_figures_alone(tmp_path: Path) -> None:
    assert write_model_index(tmp_path, [*read_reported(), BAD]) == []
    assert "spearman" not in to_model_index("tfidf", rows_of("nsmc"))


# --- on disk and in a browser ---------------------------------------------------------------------------------------


def test_the_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_leaderboard(tmp_path / name, FULL.file, ORDER, FULL.evidence)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert {str(path) for path in files} == {
        *(f"leaderboard.{kind}" for kind in ("json", "csv", "md", "en.md", "html")),
        *(f"model-index/{model}.yml" for model in MODELS),
    }
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()


# What a reader does: the other language, the best first, one task, one model right and another wrong.
VISIT = """
<script>
const click = (element) => element.dispatchEvent(new Event("click", {bubbles: true}));
const set = (id, value, kind = "change") => {
  const e = document.getElementById(id);
  e.value = value;
  e.dispatchEvent(new Event(kind));
};
click(document.querySelector("[data-set=en]"));
click(document.querySelector("#scores-official thead [data-task=nsmc] button"));
const visit = {
  lang: document.documentElement.lang,
  placeholder: document.getElementById("find").placeholder,
  columns: [...document.querySelectorAll("#scores-official thead th")].filter((e) => !e.hidden).length,
  order: [...document.querySelector("#scores-official tbody").rows].slice(1).map((r) => r.cells[0].textContent.trim()),
};
set("case-right", "tfidf"); set("case-wrong", "majority");
const shown = [...document.querySelectorAll(".case")].filter((e) => !e.hidden && !e.parentNode.hidden);
visit.cases = shown.map((e) => [JSON.parse(e.dataset.right), JSON.parse(e.dataset.wrong)]);
set("find", "tfidf", "input");
const isShown = (row) => !row.hidden && !row.parentNode.hidden && row.cells.length > 1;
visit.found = [...document.querySelectorAll(".scores tbody tr")].filter(isShown).length;
visit.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.body.setAttribute("data-visit", JSON.stringify(visit));
</script>
</body>
"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_works_in_a_browser(chromium: str, tmp_path: Path, width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(to_html(FULL).replace("</body>", VISIT), encoding="utf-8")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", "--enable-logging=stderr"]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=True, timeout=240
    )
    assert "Uncaught" not in done.stderr
    assert "Content Security Policy" not in done.stderr
    (found,) = re.findall(r'<body data-visit="([^"]*)"', done.stdout)
    visit = json.loads(html.unescape(found))
    assert visit["lang"] == "en"
    assert visit["placeholder"] == Texts("en", "report")("search")
    ranking = [column for column in FULL.official.columns if column.is_ranking]
    assert visit["columns"] == 1 + len(ranking)
    best = sorted(MODELS, key=lambda model: -SCORES[model])
    assert visit["order"] == [model_title(model) for model in best]
    assert visit["cases"]
    assert all("tfidf" in right and "majority" in wrong for right, wrong in visit["cases"])
    assert visit["found"] == 2
    assert visit["overflow"] <= 0
