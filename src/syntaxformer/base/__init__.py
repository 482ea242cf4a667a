"""What every room may use: errors, files, settings, progress, statistics. It knows no product."""
