"""Repeatable measurements. Run them as modules from the repository's root: ``python -m bench.harbor_baseline …``."""
