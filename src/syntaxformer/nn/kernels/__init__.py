"""What is only there for speed or memory, each behind the plain operation that it replaces."""
