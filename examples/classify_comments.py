"""Classify film reviews and show which words decided.

python examples/classify_comments.py
"""

from downstream.classify import Classifier

reviews = ["배우들 연기가 정말 좋았다", "두 시간이 아까웠다", "음악은 좋은데 이야기가 너무 늘어진다"]
classifier = Classifier.load()
for review, probabilities in zip(reviews, classifier.probabilities(reviews), strict=True):
    label = classifier.labels[probabilities.argmax()]
    print(f"{label} {probabilities.max():.0%}  {review}")
    for word in sorted(classifier.weigh(review, label), key=lambda word: -word.weight)[:2]:
        print(f"  {word.weight:+.2f} {review[word.start : word.end]}")
