"""Fine-tuning of encoders: tasks, tables of examples, training, `Classifier`, prediction, export.

Import from the files: what predicts imports nothing that trains.
"""
