"""Text to batches: parallel files, subwords, encoded pairs, batches by a budget of pieces.

Import from the files: `parallel`, `subwords`, `source`, `prepare`, `collator`, `batches`.
"""
