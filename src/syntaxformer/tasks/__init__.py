"""What a user does, one file a task: train a translator, translate.

Import from the files: `translation`, `translator`, `model_folder`, `run_folder`.
"""
