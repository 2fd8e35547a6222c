"""From raw files to a corpus in stages, each a list of independent tasks; `corpora.pipeline.stages` lists them."""
