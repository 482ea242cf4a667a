"""Training of the bundled spaCy pipelines `en` and `de`: not part of the installed package."""
