"""The HTML page of a run: one file that needs nothing else."""
