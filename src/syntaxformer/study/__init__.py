"""Tools to look into models: attention as arrays and pictures, its spread, ablation, differing sentences.

Import from the modules.
"""
