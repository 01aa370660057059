"""Writes docs/result.schema.json, the published shape of an attempt's result.json. Run it after changing the record."""

from __future__ import annotations

import json
from pathlib import Path

from harness.record import AttemptRecord

PATH = Path(__file__).parent.parent / "docs" / "result.schema.json"


def schema() -> str:
    """The schema as text, ending with a newline."""
    document = AttemptRecord.model_json_schema(mode="serialization")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema(), encoding="utf-8")
