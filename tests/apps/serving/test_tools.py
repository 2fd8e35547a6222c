"""The registry of tools: every option of every function, texts and examples for all, and the functions' own results."""

import json
import logging
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

pytest.importorskip("fastapi", reason="needs fastapi and prometheus-client: pip install 'pressbert[serve]'")

from apps.clustering import CharNgrams, ClusteringConfig, cluster, find_duplicates
from apps.serve import main, supported_words
from apps.serving.page import example, kind_of
from apps.serving.services import Settings, load_services
from apps.serving.tool import (
    ENGLISH,
    KOREAN,
    Service,
    UnsuitableError,
    all_tools,
    arguments_of,
    documented,
    request_model,
)
from apps.stories.duplicates import DuplicateConfig
from apps.stories.keywords import ClassTfidf
from corpora.documents import read_documents
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.answer import SentenceFinder
from downstream.awkward import awkward
from downstream.classify import Classifier
from downstream.complete import complete
from downstream.fill_mask import MaskFiller
from downstream.moderate import moderate, soften
from downstream.moderate.model import bundled_moderator
from downstream.proofread import proofread
from downstream.runtimes.backends import WORDS
from downstream.stance import stance
from downstream.summarize import summarize

TOOLS = all_tools()
NAMES = (
    "answer",
    "awkward",
    "blanks",
    "changes",
    "classify",
    "complete",
    "desk",
    "duplicates",
    "embed",
    "keywords",
    "moderate",
    "proofread",
    "signals",
    "stories",
    "summarize",
)
ARTICLE = next(read_documents(SAMPLE_ROOT / "news.jsonl"))
TITLES = [document.title for document in read_documents(SAMPLE_ROOT / "news.jsonl")][:60]


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    """Return every tool, with bundled models that start fast."""
    tools = dict.fromkeys(NAMES, "bundled") | {"stories": "letters"}
    return load_services(Settings(tools=tools, runtime="onnx-fp32"))


def answers(service: Service, body: Mapping[str, Any]) -> list[Any]:
    """Return the results for a request."""
    items = service.items(service.request.model_validate(body))
    shown = [json.loads(service.show(item, service.compute([item])[0])) for item in items]
    return list(shown[0]) if service.is_whole else shown


def field_at(model: type[BaseModel], location: str) -> Any:
    """Return the field of a request at a dotted location."""
    first, _, rest = location.partition(".")
    field = model.model_fields[first]
    if not rest:
        return field
    (inner,) = field.annotation.__args__  # list[Model]
    return field_at(inner, rest)


# ---- the registry ----


def test_every_tool_has_every_option_of_its_function_with_its_default() -> None:
    assert tuple(TOOLS) == NAMES
    for name, tool in TOOLS.items():
        known = {key for function in tool.functions for key in arguments_of(function)}
        assert (set(tool.locations or {}) | tool.server_side) <= known, name
        for function in tool.functions:
            for argument, (_, default) in arguments_of(function).items():
                if argument in tool.server_side:
                    continue
                location = (tool.locations or {}).get(argument, argument)
                field = field_at(tool.request, location)
                if default is not ...:
                    assert field.default == default, (name, argument)


def test_only_objects_are_left_to_the_server() -> None:
    """A string or a number that a user could send is an option, except for the model, which the server loads."""
    for name, tool in TOOLS.items():
        for function in tool.functions:
            for argument in tool.server_side & set(arguments_of(function)):
                hint, _ = arguments_of(function)[argument]
                kinds = {hint, *getattr(hint, "__args__", ())} - {type(None)}
                is_plain = bool(kinds & {int, float, str}) and argument != "model"
                assert not is_plain, (name, argument)


def test_an_argument_that_is_added_to_a_function_is_an_option() -> None:
    def shorten(text: str, length: int = 3, *, tone: str = "plain") -> str:
        """Shorten.

        Args:
            text: what is shortened.
            length: letters.
            tone: how it
                sounds.
        """
        return f"{text[:length]} {tone}"

    model = request_model("Shorten", "Shorten.", [shorten], {"length": (int, Field(ge=1))})
    assert model.model_validate({"text": "가나다라"}).model_dump() == {"text": "가나다라", "length": 3, "tone": "plain"}
    assert model.model_fields["tone"].description == "how it sounds."
    assert documented(shorten, "text") == "what is shortened."
    for wrong in ({"text": "가", "length": 0}, {"text": "가", "tone": 1}, {"text": "가", "colour": "x"}, {}):
        with pytest.raises(ValidationError):
            model.model_validate(wrong)


def test_every_tool_is_described_in_both_languages_and_every_field_is_explained() -> None:
    for name, tool in TOOLS.items():
        for texts in (KOREAN, ENGLISH):
            assert texts(f"tool.{name}.summary"), name
            assert texts(f"tool.{name}.about"), name
        schema = tool.request.model_json_schema()
        for field, part in schema["properties"].items():
            assert part.get("description"), (name, field)
            assert kind_of(part, {"components": {"schemas": {}}} | _as_openapi(schema)), (name, field)


def _as_openapi(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"components": {"schemas": schema.get("$defs", {})}}


def test_every_tool_answers_its_example_as_its_response_says(services: dict[str, Service]) -> None:
    for name, service in services.items():
        described = service.described or service.request
        schema = described.model_json_schema()
        body = example(schema, _as_openapi(schema))
        results = answers(service, body)
        assert results, name
        service.response.model_validate({"model": service.model, "results": results})


def test_tools_are_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    for name in TOOLS:
        assert f"--{name}" in text, name
    for word in WORDS:
        assert (word in text) == (word in supported_words()) or any(word in other for other in supported_words()), word


# ---- the functions' results ----


def test_summaries_take_all_options(services: dict[str, Service]) -> None:
    for options in (
        {"sentences": 2},
        {"ratio": 0.3},
        {"max_chars": 90},
        {"focus": "시민", "explain": True},
        {"sentences": 5, "max_chars": 200, "explain": True},
    ):
        for text in (ARTICLE.text, unicodedata.normalize("NFD", ARTICLE.text)):
            (found,) = answers(services["summarize"], {"articles": [{"text": text, "title": ARTICLE.title}], **options})
            right: Any = summarize(text, title=ARTICLE.title, **options)  # type: ignore[arg-type]
            assert [s["text"] for s in found["sentences"]] == [s.text for s in right.sentences], options
            assert [s["components"] for s in found["candidates"]] == [dict(s.components) for s in right.candidates]
            assert [(e["text"], e["kind"]) for e in found["excluded"]] == [(e.text, e.kind) for e in right.excluded]


def test_stories_take_titles_articles_and_settings(services: dict[str, Service]) -> None:
    config = {"min_size": 2, "noise": "keep"}
    (found,) = answers(services["stories"], {"articles": TITLES, "config": config})
    right = cluster(TITLES, ClusteringConfig(**config), embedder=CharNgrams())
    assert [story["headline"] for story in found["stories"]] == [story.headline for story in right.stories]
    assert [[m["index"] for m in story["members"]] for story in found["stories"]] == [
        [m.index for m in story.members] for story in right.stories
    ]
    assert found["noise"] == list(right.noise)
    records = [{"title": title, "category": "사회", "date": "2021-06-01T09:30"} for title in TITLES]
    (same,) = answers(services["stories"], {"articles": records, "config": config})
    assert [story["headline"] for story in same["stories"]] == [story["headline"] for story in found["stories"]]
    for few in (["하나"], [""], ["?", "!"]):
        assert answers(services["stories"], {"articles": few})[0]["stories"] == []


def test_duplicates_take_points_and_thresholds(services: dict[str, Service]) -> None:
    texts = ["금리 3.5% 동결", "금리, 3.5% 동결", "금리 4.5% 동결", "동결된 금리 3.5%"]
    points = np.eye(4)[[0, 0, 1, 0]].tolist()
    for options in ({}, {"points": points}, {"config": {"min_jaccard": 0.2}}, {"config": {"shingle": 2}}):
        given = {
            "points": np.array(points, np.float32) if "points" in options else None,
            "config": DuplicateConfig(**options["config"]) if "config" in options else None,  # type: ignore[arg-type]
        }
        right = [list(group.members) for group in find_duplicates(texts, **given)]  # type: ignore[arg-type]
        assert [group["members"] for group in answers(services["duplicates"], {"texts": texts, **options})] == right
    for wrong in ([[1.0]], [[1.0]] * 3 + [[1.0, 0.0]], [[2.0]] * 4, [[0.5, 0.5]] * 4):
        with pytest.raises(UnsuitableError, match=r"points.*4 vectors of length 1"):
            answers(services["duplicates"], {"texts": texts, "points": wrong})


def test_keywords_are_those_of_the_groups(services: dict[str, Service]) -> None:
    texts, labels = ["얀센 백신 예약 마감", "얀센 백신 예약 첫날", "기준금리 동결", "남는 제목"], [0, 0, 1, -1]
    for options in ({}, {"num_keywords": 2}, {"num_keywords": 3, "diversity": 0.0}):
        found = answers(services["keywords"], {"texts": texts, "labels": labels, **options})
        right = ClassTfidf(**options)(texts, np.array(labels))  # type: ignore[arg-type]
        assert [[word["text"] for word in words] for words in found] == [[w.text for w in words] for words in right]
    with pytest.raises(UnsuitableError, match="4"):
        answers(services["keywords"], {"texts": texts, "labels": [0]})


def test_words_that_decide_come_with_a_label(services: dict[str, Service]) -> None:
    text = unicodedata.normalize("NFD", "배우들 연기가 정말 좋았다")
    (found,) = answers(services["classify"], {"texts": [text], "label": "positive"})
    right = Classifier.load().weigh(text, "positive")
    assert [(word["start"], word["end"]) for word in found["words"]] == [(w.start, w.end) for w in right]
    assert [word["weight"] for word in found["words"]] == pytest.approx([w.weight for w in right], abs=1e-4)
    assert "words" not in answers(services["classify"], {"texts": [text]})[0]
    with pytest.raises(UnsuitableError, match="negative, positive"):
        answers(services["classify"], {"texts": [text], "label": "좋음"})


def test_errors_are_found_as_by_the_function(services: dict[str, Service]) -> None:
    text = "이렇게 하면 안되요. 몇일 걸릴수 있습니다."
    (found,) = answers(services["proofread"], {"texts": [text], "only": ["spelling"]})
    assert found == json.loads(to_json(proofread(text, only=["spelling"])))
    assert [one["text"] for one in found] == ["몇일"]


def test_awkward_wording_and_completions_are_those_of_the_functions(services: dict[str, Service]) -> None:
    text = "시민들로 하여금 떠나게 했다."
    (found,) = answers(services["awkward"], {"texts": [text]})
    assert found == json.loads(to_json(awkward(text)))
    assert found[0]["text"] == "로 하여금"
    begun = "시는 내년 예산을 확"
    (completions,) = answers(services["complete"], {"texts": [begun], "num_completions": 2})
    assert completions == json.loads(to_json(complete(begun, 2)))
    assert len(completions) == 2


def test_blanks_are_filled_as_by_the_function(services: dict[str, Service]) -> None:
    text = "내일은 전국에 [MASK]가 내리고 바람이 □ 불겠다"
    (found,) = answers(services["blanks"], {"texts": [text], "num_candidates": 3})
    right = MaskFiller.load().fill(text, 3)
    assert [[c["text"] for c in blank["candidates"]] for blank in found] == [
        [c.text for c in blank.candidates] for blank in right
    ]
    for wrong, reason in (("빈칸이 없다", "no blank"), ("[MASK] " + "가나다라 " * 2000, "tokens")):
        with pytest.raises(UnsuitableError, match=reason):
            answers(services["blanks"], {"texts": [wrong]})


def test_without_a_model_answers_are_sentences(services: dict[str, Service]) -> None:
    context = unicodedata.normalize("NFD", "주민들은 반겼다. 새 다리가 지난 3일 열렸다.")
    question = "다리는 언제 열렸나?"
    (found,) = answers(services["answer"], {"questions": [{"question": question, "context": context}]})
    right = SentenceFinder().answer(question, context)
    assert (found["answer"], found["start"], found["end"]) == (right.text, right.start, right.end)
    assert context[found["start"] : found["end"]] == found["answer"]
    for question, given in (("\x1c", "글"), ("무엇?", "\x1f")):
        with pytest.raises(UnsuitableError, match="blank"):
            answers(services["answer"], {"questions": [{"question": question, "context": given}]})


def test_results_that_are_kept_hold_no_text(services: dict[str, Service]) -> None:
    for name, service in services.items():
        described = service.described or service.request
        schema = described.model_json_schema()
        request = service.request.model_validate(example(schema, _as_openapi(schema)))
        given = {word for item in service.items(request) for text in item.texts for word in text.split()}
        for item in service.items(request):
            value = service.compute([item])[0].decode()
            assert not service.is_cached or not [w for w in given if len(w) > 1 and w in value], name


def test_comments_are_judged_and_softened_as_by_the_functions(services: dict[str, Service]) -> None:
    text = unicodedata.normalize("NFD", "이런 멍청하고 못생긴 새끼들은 다 꺼져라")
    precision = min(bundled_moderator().settings.thresholds)
    body = {"texts": [text], "soften": True, "precision": float(precision)}
    (found,) = answers(services["moderate"], body)
    right = moderate(text, precision=float(precision))
    assert found["score"] == pytest.approx(right.score)
    assert [span["text"] for span in found["spans"]] == [span.text for span in right.spans]
    proposals = soften(text, precision=float(precision))
    assert proposals
    assert [each["softened"] for each in found["proposals"]] == [each.text for each in proposals]
    with pytest.raises(UnsuitableError, match="precision"):
        answers(services["moderate"], body | {"precision": 0.123})


def test_the_desk_and_its_changes_are_served(services: dict[str, Service]) -> None:
    draft = {"text": "새 다리가 3일 열렸다. 주민들은 반겼다.", "title": "새 다리"}
    (found,) = answers(services["desk"], {"articles": [draft], "archive": [draft, {"text": "금리를 동결했다."}]})
    assert [each["is_copy"] for each in found["similar"]] == [True, False]
    assert [part["text"] for part in found["bullets"]]
    body = {"old": draft["text"], "new": draft["text"].replace("3일", "5일")}
    (change,) = answers(services["changes"], body)
    assert (change["kind"], change["old_text"], change["new_text"]) == ("number", "3일", "5일")


def test_signals_are_those_of_the_functions(services: dict[str, Service]) -> None:
    article = {"text": "시민단체는 “졸속 행정”이라고 비판했다.", "title": "결국 이것"}
    (found,) = answers(services["signals"], {"articles": [article]})
    right = stance(article["text"], article["title"]).signals
    assert [signal["text"] for signal in found["stance"]["signals"]] == [signal.text for signal in right]
    assert {signal["kind"] for signal in found["clickbait"]["signals"]} == {"bait", "pointer"}


# ---- mistakes ----


def test_a_wrong_model_for_any_tool_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for name, tool in TOOLS.items():
        if not tool.model:
            continue
        for folder in ("missing", "empty", "other", "file"):
            with pytest.raises(SuiteError) as caught:
                tool.open(str(tmp_path / folder), "torch")
            assert len(str(caught.value).splitlines()) == 1, (name, folder)


def test_every_runtime_runs_every_tool_or_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtimes of `--help` are accepted, all other words are refused before anything is loaded."""
    started: list[str] = []
    monkeypatch.setattr("apps.serve.serve", lambda config, _: started.append(config.settings.runtime))
    for word in (*WORDS, "numpy", "openvino", "", "AUTO", "onnx fp32"):
        for name in TOOLS:
            started.clear()
            if word in supported_words():
                assert main([f"--{name}", "--runtime", word]) == 0, (name, word)
                assert started == [word], (name, word)
            else:
                with pytest.raises(SuiteError) as caught:
                    main([f"--{name}", "--runtime", word])
                assert len(str(caught.value).splitlines()) == 1, (name, word)
                assert started == [], (name, word)


def test_loading_reports_each_tool_and_transformers_is_silent() -> None:
    import torch
    import transformers

    from downstream.encoders.hub import bundled
    from downstream.encoders.tokenizers import load_tokenizer
    from downstream.runtimes.network import pooled_network

    events: list[tuple[str, dict[str, Any]]] = []
    load_services(
        Settings(tools={"duplicates": "bundled", "answer": "bundled"}),
        lambda event, **fields: events.append((event, fields)),
    )
    assert [(event, fields["tool"], fields["of"]) for event, fields in events] == [
        ("loading", "answer", 2),
        ("loaded", "answer", 2),
        ("loading", "duplicates", 2),
        ("loaded", "duplicates", 2),
    ]
    assert all(fields["seconds"] >= 0 for event, fields in events if event == "loaded")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("transformers").addHandler(handler)
    library: Any = transformers.utils.logging
    before = library.get_verbosity()
    library.set_verbosity_warning()
    try:
        folder = bundled("encoder")
        with torch.inference_mode():
            pooled_network(folder, load_tokenizer(folder)).build()
        assert library.get_verbosity() == logging.WARNING
    finally:
        logging.getLogger("transformers").removeHandler(handler)
        library.set_verbosity(before)
    assert [record.getMessage() for record in records if record.levelno >= logging.WARNING] == []


def test_signatures_are_read_from_functions_methods_and_classes() -> None:
    assert arguments_of(ClassTfidf) == {"num_keywords": (int, 8), "diversity": (float, 0.3)}
    assert list(arguments_of(Classifier.weigh)) == ["text", "label"]
