"""Checks that every task, encoder and summarizer passes; `pressbert.checks` has them all."""
