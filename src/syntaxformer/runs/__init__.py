"""What every run shares: its folder, checkpoints, precision, processes, callbacks."""
