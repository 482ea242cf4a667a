"""A first look: a bundled corpus of everyday sentences, and two translators trained on it and compared.

Import from the files: `corpus`, `run`.
"""
