"""Embed sentences and compare them by cosine similarity.

python examples/compare_sentences.py
"""

from downstream.embed import encode

sentences = [
    "국회가 예산안을 의결했다.",
    "예산안이 국회를 통과했다.",
    "주말에 전국에 비가 내린다.",
    "토요일과 일요일 곳곳에 비 소식이 있다.",
]
vectors = encode(sentences)  # float32 (N, 256), unit length
print((vectors @ vectors.T).round(2))
