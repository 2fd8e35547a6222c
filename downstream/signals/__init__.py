"""Signals of stance, advertorials and clickbait: where they stand, their figures, and labels of one's own learnt.

`downstream.stance`, `downstream.advertorial` and `downstream.clickbait` find signals and name their kinds. They claim
nothing about the article as a whole: without labelled data, no accuracy is known.
"""
