"""Tasks: the model, and reading it from a directory."""
