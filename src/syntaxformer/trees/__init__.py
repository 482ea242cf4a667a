"""Sentences and trees: plain Python, no torch, no model."""

from syntaxformer.trees.sentence import ROOT, Sentence

__all__ = ["ROOT", "Sentence"]
