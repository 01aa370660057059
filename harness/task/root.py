"""Where a benchmark begins."""

from __future__ import annotations

from pathlib import Path

BENCHMARK_FILE = "benchmark.toml"


def find_root(path: Path) -> Path:
    """The nearest folder, from ``path`` upwards, with a ``benchmark.toml``; else ``path`` itself. Absolute, without links."""
    folder = path.resolve()
    return next((parent for parent in (folder, *folder.parents) if (parent / BENCHMARK_FILE).is_file()), folder)
