"""Annotated corpora on disk: their file format, the cache, and annotation in shards."""
