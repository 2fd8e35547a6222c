"""The tools under scikit-learn's verbs: its own checks of estimators, pipelines, searches, and BERTopic."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

import pressbert
from corpora.documents import read_documents
from corpora.foundation.errors import SuiteError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.embed import bundled_embedder
from pressbert.estimators import (
    CommentClassifier,
    EmbeddingTransformer,
    StoryClusterer,
    SummaryTransformer,
    TextClassifier,
    noun_terms,
)

ESTIMATORS = (EmbeddingTransformer, SummaryTransformer, TextClassifier, CommentClassifier, StoryClusterer)
TITLES = ["누리호 발사대 기립", "누리호, 발사대에 기립", "한국형 발사체 누리호 발사대 기립", "첫눈 내린 고갯길"]
TITLES += ["한은, 기준금리 3.5% 동결", "한은 기준금리, 3.5% 동결", "금통위, 기준금리 3.5%로 또 동결"]
REVIEWS = ["배우들 연기가 정말 좋았다", "시간이 아까운 영화다", "최고의 영화", "지루하고 재미없다"]
SENTIMENT = ["positive", "negative", "positive", "negative"]
# `check_estimator` itself ends after the first of these for what takes no numbers.
CHECKS: tuple[Callable[..., None], ...] = (
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_mixin_order,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
)


def targets(estimator: Any) -> tuple[list[str], list[str] | None]:
    """Return texts that an estimator is fitted on, with labels for a classifier."""
    if isinstance(estimator, TextClassifier):
        return REVIEWS, SENTIMENT
    if isinstance(estimator, CommentClassifier):
        return ["정말 못생긴 놈이 나왔네", "좋은 소식이네요"], ["offensive", "none"]
    return TITLES, None


def test_every_estimator_passes_the_checks_of_scikit_learn() -> None:
    for kind in ESTIMATORS:
        for check in CHECKS:
            check(kind.__name__, kind())


def test_fitting_returns_the_estimator_and_changes_neither_parameters_nor_texts() -> None:
    for kind in ESTIMATORS:
        estimator, (texts, labels) = kind(), targets(kind())
        kept, before = list(texts), estimator.get_params()
        assert estimator.fit(texts, labels) is estimator, kind
        check_is_fitted(estimator)
        assert (texts, estimator.get_params()) == (kept, before), kind
        assert clone(estimator).get_params() == before, kind
        assert not estimator.__sklearn_tags__().input_tags.two_d_array, kind


def test_what_is_no_sequence_of_strings_is_refused() -> None:
    for kind in ESTIMATORS:
        verb = "fit_predict" if kind is StoryClusterer else "predict" if hasattr(kind, "predict") else "fit_transform"
        for wrong in ("누리호 발사대 기립", [1.5], np.zeros((2, 3)), [["누리호"], ["첫눈"]], [None]):
            with pytest.raises(ValueError, match="string"):
                getattr(kind(), verb)(wrong)


def test_vectors_are_those_of_embed_and_have_names() -> None:
    vectors = EmbeddingTransformer().fit_transform(np.array(TITLES))
    assert np.array_equal(vectors, pressbert.embed(TITLES))
    assert len(EmbeddingTransformer().get_feature_names_out()) == vectors.shape[1]
    assert np.array_equal(vectors, EmbeddingTransformer(str(bundled_embedder())).transform(TITLES))
    assert EmbeddingTransformer().transform([]).shape == (0, vectors.shape[1])


def test_summaries_are_those_of_summarize() -> None:
    articles = [document.text for document in read_documents(SAMPLE_ROOT / "news.jsonl")][:3]
    summaries = SummaryTransformer(sentences=2).fit_transform(articles)
    assert summaries.tolist() == [str(pressbert.summarize(article, sentences=2)) for article in articles]
    with pytest.raises(ValueError, match="sentences"):
        SummaryTransformer(sentences=0).transform(articles)


def test_a_classifier_keeps_its_labels_in_the_order_of_its_columns() -> None:
    classifier = TextClassifier().fit(REVIEWS, SENTIMENT)
    assert classifier.classes_.tolist() == sorted(pressbert.Classifier.load().labels)
    probabilities = classifier.predict_proba(REVIEWS)
    for row, found in zip(probabilities, pressbert.classify(REVIEWS), strict=True):
        assert dict(zip(classifier.classes_, row, strict=True)) == pytest.approx(found.probabilities)
    assert classifier.predict(REVIEWS).tolist() == SENTIMENT
    assert classifier.score(REVIEWS, SENTIMENT) == 1
    for comment in ("정말 못생긴 놈이 나왔네", "좋은 소식이네요"):
        assert CommentClassifier().predict([comment]).tolist() == [pressbert.moderate(comment).label]


def test_a_classifier_refuses_labels_that_its_model_does_not_have() -> None:
    for labels, message in ((["positive", "funny"], "'funny'.*negative, positive"), (["positive"], "2 texts and 1")):
        with pytest.raises(ValueError, match=message):
            TextClassifier().fit(REVIEWS[:2], labels)


def test_changing_the_model_of_a_used_classifier_opens_the_other_one() -> None:
    classifier = TextClassifier()
    classifier.predict(REVIEWS)
    with pytest.raises(SuiteError, match="nowhere"):
        classifier.set_params(model="nowhere").predict(REVIEWS)


def test_stories_are_those_of_cluster() -> None:
    clusterer = StoryClusterer(min_size=3)
    labels = clusterer.fit_predict(TITLES)
    assert labels.tolist() == pressbert.cluster(TITLES).labels.tolist()
    assert [story.headline for story in clusterer.stories_] == [s.headline for s in pressbert.cluster(TITLES).stories]
    assert labels[3] == -1
    with pytest.raises(ValueError, match="min_size"):
        StoryClusterer(min_size=0).fit(TITLES)


def test_a_pipeline_learns_labels_and_is_searched() -> None:
    topics = ["rocket", "rocket", "rocket", "weather", "rates", "rates", "rates"]
    pipeline = make_pipeline(EmbeddingTransformer(), LogisticRegression(C=100))
    assert pipeline.fit(TITLES, topics).predict(["누리호 발사 성공", "기준금리 인하"]).tolist() == ["rocket", "rates"]
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.01, 100]}, cv=2)
    search.fit(TITLES[:3] + TITLES[4:], topics[:3] + topics[4:])
    assert search.best_score_ == 1
    names = make_pipeline(EmbeddingTransformer(), PCA(2)).fit(TITLES).get_feature_names_out().tolist()
    assert names == ["pca0", "pca1"]
    terms = CountVectorizer(analyzer=noun_terms).fit(TITLES).get_feature_names_out()
    assert {"발사대", "기준금리", "첫눈"} <= set(terms)


@pytest.mark.slow
def test_bertopic_finds_topics_with_the_embedder_as_a_pipeline_a_folder_and_an_object() -> None:
    bertopic = pytest.importorskip("bertopic", reason="pip install 'pressbert[topics]' to run this test")
    from sentence_transformers import SentenceTransformer

    titles = [*TITLES[:3], *TITLES[4:]]
    folder = str(bundled_embedder())
    found = []
    for model in (make_pipeline(EmbeddingTransformer()), folder, SentenceTransformer(folder, trust_remote_code=False)):
        topics = bertopic.BERTopic(
            embedding_model=model,
            umap_model=PCA(2),
            hdbscan_model=KMeans(2, random_state=0),
            vectorizer_model=CountVectorizer(analyzer=noun_terms),
        )
        labels, _ = topics.fit_transform(titles)
        assert labels[0] == labels[1] == labels[2] != labels[3] == labels[4] == labels[5], model
        words = {word for topic in (0, 1) for word, _ in topics.get_topic(topic)}
        assert {"발사대", "기준금리"} <= words, model
        found.append(topics.embedding_model.embed(titles))
    for vectors in found[1:]:
        assert np.allclose(normalize(vectors), found[0], atol=1e-5)
