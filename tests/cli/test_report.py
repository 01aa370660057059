"""`harness report` and `harness compare` as a user runs them, and the page: self-contained, inert, and honest about what has no grade."""

import json
import shlex
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.cli.page.report import render
from harness.cli.report import ReportDocument, write_report
from harness.errors import ConfigError
from harness.evaluation import report_on
from harness.outcome import Cause, Ending, Integrity
from harness.record import BenchmarkPlan, RunRecord
from harness.sample import Sample
from harness.store.sql import SqlStore
from tests.samples import a_record, a_step, aborted, attempt, graded

HOSTILE = "</th><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J"
Call = Callable[..., Result]


def a_run(folder: Path, identifier: str, **more: object) -> RunRecord:
    values = {
        "created_at": 1.0,
        "finished_at": 9.0,
        "command": ("harness", "run"),
        "agent": "nop",
        "attempts": 1,
        **more,
    }
    return RunRecord(id=identifier, folder=folder / identifier, **values)  # pyright: ignore[reportArgumentType]


def keep(folder: Path, run: RunRecord, samples: Sequence[Sample], detail: str = "") -> None:
    with SqlStore(folder) as store:
        owned = store.begin(run, ())
        for sample in samples:
            record = a_record(run.folder, sample, run=run.id, detail=detail)
            record.folder.mkdir(parents=True)
            owned.save_attempts([record])


@pytest.fixture
def call(tmp_path: Path) -> Call:
    def run(line: str, *more: object) -> Result:
        return CliRunner().invoke(
            cli, [*shlex.split(line), *map(str, more), "--runs-dir", str(tmp_path)], standalone_mode=False
        )

    return run


class Page(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and the text of each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def having(self, mark: str) -> list[tuple[str, dict[str, str]]]:
        return [(tag, attributes) for tag, attributes in self.elements if mark in attributes.get("class", "").split()]


def page_of(folder: Path, samples: Sequence[Sample], detail: str = "", plans: tuple[BenchmarkPlan, ...] = ()) -> Page:
    run = a_run(folder, "r1", benchmarks=plans)
    records = [a_record(run.folder, sample, run="r1", detail=detail) for sample in samples]
    return Page(render(run, report_on(run, records), records, folder=folder))


# --- the command line ---------------------------------------------------------------------------------------------


def test_a_report_says_the_numbers_and_what_has_no_grade(tmp_path: Path, call: Call):
    plans = (BenchmarkPlan(benchmark="b", n=2, tasks=2),)
    samples = [graded(1.0, 0), graded(0.0, 1), graded(1.0, 0, task="u"), aborted(1, task="u", attempt="old")]
    keep(
        tmp_path, a_run(tmp_path, "r1", benchmarks=plans), [*samples, aborted(1, task="u", retry_of="old")], "no space"
    )
    result = call("report r")
    for part in (
        "mean reward 0.6667 ± ", "2 passed, 1 failed, 1 ungraded", "aborted: 1 of 4 attempts (25.0%)",
        "ungraded: 1 × ABORTED/SandboxLost: no space", "run again, and not counted above: 1 × ABORTED/SandboxLost",
        "pass@1 0.5, pass@2 1 (1 of 2 tasks have all 2 grades)",
    ):  # fmt: skip
        assert part in result.output
    assert call("report r1 --json").exit_code == 0


def test_a_run_without_a_grade_has_no_mean_on_screen_or_in_json(tmp_path: Path, call: Call):
    keep(tmp_path, a_run(tmp_path, "r1"), [aborted(0), attempt(Ending.HARNESS_FAILED, 1)])
    assert "not graded: 0 passed, 0 failed, 2 ungraded" in call("report r1").output
    document = json.loads(call("report r1 --json").output)
    assert document["summary"]["mean_reward"] is None
    assert "eval/b" not in document["metrics"]
    assert document["metrics"]["eval/b-ungraded/HARNESS_FAILED"] == 1


def test_the_kept_report_is_the_printed_one(tmp_path: Path, call: Call):
    run = a_run(tmp_path, "r1")
    keep(tmp_path, run, [graded(1.0, 0), graded(0.5, 1)])
    with SqlStore(tmp_path) as store:
        write_report(run, report_on(run, store.attempts(run.id)))
    kept = (run.folder / "report.json").read_text()
    assert ReportDocument.model_validate_json(kept) == ReportDocument.model_validate_json(
        call("report r1 --json").output
    )


def test_several_benchmarks_have_a_row_each(tmp_path: Path, call: Call):
    plans = (BenchmarkPlan(benchmark="one", n=1, tasks=2), BenchmarkPlan(benchmark="two", n=3, tasks=1))
    samples = [graded(1.0, 0, benchmark="one"), aborted(0, task="u", benchmark="one"), graded(0.0, benchmark="two")]
    keep(tmp_path, a_run(tmp_path, "r1", benchmarks=plans), samples)
    rows = {line.split()[0]: line.split() for line in call("report r1").output.splitlines()}
    assert rows["one"] == ["one", "2", "1", "1", "1", "0", "1", "50.0%", "pass@1", "1"]
    assert rows["two"] == ["two", "1", "3", "0", "0", "1", "0", "0.0%"]


def test_standalone_tasks_are_no_benchmarks_of_their_own(tmp_path: Path, call: Call):
    keep(tmp_path, a_run(tmp_path, "r1"), [graded(1.0, task=name, benchmark=name) for name in ("hello", "world")])
    assert "benchmark" not in call("report r1").output


def test_many_tasks_are_not_all_listed_and_the_rest_is_named(tmp_path: Path, call: Call):
    keep(tmp_path, a_run(tmp_path, "r1"), [graded(float(number > 0), task=f"t{number}") for number in range(60)])
    output = call("report r1").output
    assert "b/t0 " in output
    assert "b/t1 " not in output
    assert "59 more tasks" in output


@pytest.mark.parametrize("line", ["report nope", "compare r1 nope", "compare nope r1", "report r1 --html /nowhere/x"])
def test_what_cant_be_done_is_one_clear_error(tmp_path: Path, call: Call, line: str):
    keep(tmp_path, a_run(tmp_path, "r1"), [graded(1.0)])
    result = call(line)
    assert isinstance(result.exception, ConfigError), "which is exit status 2"
    assert "nope" in str(result.exception) or "/nowhere/x" in str(result.exception)


def test_a_comparison_on_screen_and_as_json(tmp_path: Path, call: Call):
    keep(
        tmp_path, a_run(tmp_path, "r1"), [graded(0.0), graded(0.0, task="u"), graded(1.0, task="v"), aborted(task="w")]
    )
    keep(
        tmp_path,
        a_run(tmp_path, "s2"),
        [graded(1.0), graded(0.0, task="u"), graded(1.0, task="v"), graded(0, task="w")],
    )
    output = call("compare r s").output
    assert "1 won, 0 lost, 2 tied by the second, 1 not compared (no grade on a side)" in output
    assert "difference +0.3333, 95% interval -1 to +1 (paired by task, Student's t)" in output
    row = next(line for line in output.splitlines() if line.startswith("b/w"))
    assert row.split() == ["b/w", "—", "0", "not", "compared", "1", "/", "0"]
    document = json.loads(call("compare r s --json").output)
    assert document["mean_difference"] == pytest.approx(1 / 3)
    assert [task["outcome"] for task in document["tasks"]] == ["win", "tie", "tie", "not_compared"]


# --- the page -----------------------------------------------------------------------------------------------------


def test_a_page_is_written_where_it_was_asked_for(tmp_path: Path, call: Call):
    keep(tmp_path, a_run(tmp_path, "r1"), [graded(1.0)])
    target = tmp_path / "page.html"
    result = call("report r1 --html", target)
    assert result.exit_code == 0
    assert "Run r1" in Page(target.read_text()).text


def test_nothing_from_a_task_becomes_markup(tmp_path: Path):
    step = a_step(HOSTILE, 1.0)
    samples = [
        graded(0.5, 0, task=HOSTILE, benchmark=HOSTILE, steps=(step, step)),
        aborted(0, task="x", benchmark=HOSTILE),
    ]
    page = page_of(tmp_path, samples, detail=HOSTILE, plans=(BenchmarkPlan(benchmark=HOSTILE, n=1, tasks=2),))
    names = {tag for tag, _ in page.elements}
    assert not names & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)</script>") >= 5, "it is shown as the text it is"
    assert "\x1b" not in page.text
    assert "\\x1b[2J" in page.text


def test_a_page_needs_nothing_else_and_runs_nothing(tmp_path: Path):
    page = page_of(tmp_path, [graded(1.0, index) for index in range(4)])
    addresses = [
        value
        for tag, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "action", "xlink:href", "srcset") or (tag == "meta" and value.startswith("http"))
    ]
    assert addresses, "links to the attempts"
    assert all(address.startswith("./") for address in addresses)
    assert not any(part in page.text for part in ("@import", "url("))
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.parametrize("name", ["javascript:alert(1)", "a b#c?d%e", "näme"])
def test_links_lead_to_the_attempts_folders_whatever_they_are_called(tmp_path: Path, name: str):
    sample = graded(1.0, 0, task=name)
    page = page_of(tmp_path, [sample])
    link = next(attributes["href"] for tag, attributes in page.elements if tag == "a")
    assert link.startswith("./r1/")
    assert ":" not in link
    assert tmp_path / unquote(link) == tmp_path / "r1" / f"{name}-0-{sample.attempt}"


def test_what_has_no_grade_never_looks_like_a_zero(tmp_path: Path):
    zero = page_of(tmp_path, [graded(0.0)])
    none = page_of(tmp_path, [aborted(0)])
    assert "0.000" in zero.text
    assert "0.000" not in none.text
    assert "not graded" in none.text
    for page, drawn, absent in ((zero, "zero", "none"), (none, "none", "zero")):
        marks = [tag for tag, _ in page.having(drawn)]
        assert "rect" in marks
        assert "rect" not in [tag for tag, _ in page.having(absent)]
    assert not [1 for tag, _ in none.having("fill") if tag == "rect"]
    assert len(zero.having("ungraded")) == 1, "in the legend alone"
    assert len(none.having("zero")) == 1


def test_error_bars_lie_where_the_interval_is(tmp_path: Path):
    samples = [graded(reward, task=f"t{number}") for number, reward in enumerate([0.5, 0.5, 0.75, 0.25])]
    report = report_on(a_run(tmp_path, "r1"), [a_record(tmp_path, sample) for sample in samples])
    assert report.interval is not None
    page = page_of(tmp_path, samples)
    whisker = page.having("whisker")[0][1]
    assert (whisker["x1"], whisker["x2"]) == (f"{100 * report.interval.low:.2f}%", f"{100 * report.interval.high:.2f}%")
    assert page.having("fill")[0][1]["width"] == "50.00%"


def test_the_page_names_tiers_causes_and_retries(tmp_path: Path):
    samples = [
        graded(1.0, 0, integrity=Integrity.LIVE), graded(1.0, 0, task="u"),
        aborted(1, Cause.SERVER_UNREACHABLE, attempt="old"), graded(1.0, 1, retry_of="old"),
        attempt(Ending.TIMEOUT, 2, reward=0.0),
    ]  # fmt: skip
    text = page_of(tmp_path, samples).text
    for part in ("live: 1 graded", "several tiers", "ABORTED/ServerUnreachable", "(run again)", "TIMEOUT", "agent_run"):
        assert part in text


def test_light_and_dark_are_both_there(tmp_path: Path):
    page = page_of(tmp_path, [graded(1.0)])
    assert "prefers-color-scheme: dark" in page.text
    assert ("meta", {"name": "color-scheme", "content": "light dark"}) in page.elements


@pytest.mark.parametrize("samples", [[], [aborted(0)], [graded(0.0)], [graded(1.0, index) for index in range(3)]])
def test_tags_are_balanced(tmp_path: Path, samples: list[Sample]):
    run = a_run(tmp_path, "r1", benchmarks=(BenchmarkPlan(benchmark="b", n=2, tasks=1),))
    records = [a_record(run.folder, sample) for sample in samples]
    text = render(run, report_on(run, records), records, folder=tmp_path)
    for tag in ("html", "body", "section", "table", "tbody", "tr", "td", "svg", "div", "details", "figure", "p", "a"):
        assert text.count(f"<{tag} ") + text.count(f"<{tag}>") == text.count(f"</{tag}>"), tag


def test_every_reason_for_a_missing_grade_is_told_with_its_count(tmp_path: Path, call: Call):
    with SqlStore(tmp_path) as store:
        run = a_run(tmp_path, "r1", attempts=6)
        owned = store.begin(run, ())
        for index, detail in enumerate(
            ["no such image", "no such image", "no space", "no answer", "no luck", "no time"]
        ):
            record = a_record(run.folder, aborted(index), run="r1", detail=detail)
            record.folder.mkdir(parents=True)
            owned.save_attempts([record])
    said = call("report r1").stdout
    assert "ungraded: 6 × ABORTED/SandboxLost\n  2 × no such image\n  1 × no answer\n  1 × no luck\n" in said
    assert "and 2 other reasons" in said
