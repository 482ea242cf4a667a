"""What a user does, one file a task: train a translator, translate, run the demo.

Import from the files: `translation`, `translator`, `model_folder`, `run_folder`, `demo`.
"""
