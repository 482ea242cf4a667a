"""Translation: the model, recipes, parallel text, training, `Translator`, decoding, scores, export.

Import from the files: what translates imports nothing that trains.
"""
