"""Code that only saves time or memory, each behind the plain operation that it replaces."""
