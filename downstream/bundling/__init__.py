"""The models that come with the package: from text to weights, cards and manifest."""
