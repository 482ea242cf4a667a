"""Annotated corpora on disk: stored, made once, made in shards."""
