"""Training: recipes, schedules, checkpoints without pickle, one subclass of Hugging Face's Trainer.

Import from the files: `recipe`, `schedules`, `checkpoints`, `callbacks`, `trainer`.
"""
