"""The demo: a bundled corpus of everyday sentences, and two translators that are trained on it and compared.

Import from the modules `corpus` and `run`.
"""
