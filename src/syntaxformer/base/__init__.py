"""What every room may use: errors, files, settings, progress, statistics. It imports no other room."""
