"""The published schema of result.json is that of the code, and results follow it."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harness.outcome import Ending, GradingStatus, Integrity
from harness.record import AttemptRecord

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "docs" / "result.schema.json"


def test_the_published_schema_is_current():
    spec = importlib.util.spec_from_file_location("schema", ROOT / "scripts" / "schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert PUBLISHED.read_text() == module.schema(), "run scripts/schema.py"


def a_record() -> dict[str, Any]:
    record = AttemptRecord(
        id="a",
        run="r",
        benchmark="b",
        task="t",
        task_digest="sha256:0",
        task_path=Path("/t"),
        agent="nop",
        index=0,
        ending=Ending.HARNESS_FAILED,
        grading=GradingStatus.NONE,
        integrity=Integrity.PRISTINE,
        started_at=1.0,
        folder=Path("/f"),
    )
    return json.loads(record.model_dump_json())


def test_a_result_follows_the_schema_and_an_unknown_field_does_not():
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    assert validator.is_valid(a_record())
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(a_record() | {"score": 1})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(a_record() | {"ending": "SOMETHING"})
