"""Summarize articles with the bundled model and show where each sentence stands.

python examples/summarize_articles.py
"""

from corpora.documents import read_documents
from corpora.foundation.files import SAMPLE_ROOT
from downstream.summarize import summarize

for document, _ in zip(read_documents(SAMPLE_ROOT / "news.jsonl"), range(3), strict=False):
    summary = summarize(document.text, sentences=2, title=document.title)
    print(document.title)
    for sentence in summary.sentences:
        assert document.text[sentence.start : sentence.end] == sentence.text
        print(f"  {sentence.start:4}–{sentence.end:<4} {sentence.text}")
