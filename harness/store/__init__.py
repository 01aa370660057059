"""The store: runs and verdicts in an embedded database, beside the attempts' folders."""
