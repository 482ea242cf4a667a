"""Translation: the model, recipes, parallel text, training, `Translator`, decoding, scores, export.

Import from the modules: code that translates imports no code that trains.
"""
