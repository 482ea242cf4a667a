"""Fine-tuning of encoders: tasks, tables of examples, training, `Classifier`, prediction, export.

Import from the modules: code that predicts imports no code that trains.
"""
