"""Prints the reward as JSON: 1 when the summary is right and the clean table is still as it was."""

import json
import sys
from pathlib import Path

SUMMARY = {
    "Ada": {"orders": 3, "total": 25.0},
    "Barbara": {"orders": 1, "total": 15.75},
    "Edsger": {"orders": 1, "total": 4.0},
    "Grace": {"orders": 2, "total": 27.0},
}
MAX_BYTES = 64 * 1024


def read(path: Path) -> bytes:
    """Nothing for what isn't a small, regular file."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return b""
    return path.read_bytes()


def summary_is_right(content: bytes) -> bool:
    try:
        return json.loads(content) == SUMMARY
    except (ValueError, RecursionError):
        return False


def main() -> None:
    out = Path(sys.argv[1])
    untouched = read(out / "orders.csv") == Path(__file__).with_name("orders.csv").read_bytes()
    print(json.dumps({"reward": int(untouched and summary_is_right(read(out / "summary.json")))}))


if __name__ == "__main__":
    main()
