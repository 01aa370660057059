"""A path means a task, a folder of tasks, or a benchmark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import TaskError, UsageError
from harness.task.benchmark import Benchmark, Split, load_benchmark
from harness.task.discover import find_tasks, load_tasks
from harness.task.root import find_root

from .conftest import MakeTask

MakeBenchmark = Callable[..., Path]


@pytest.fixture
def benchmark_at(make_task: MakeTask, tmp_path: Path) -> MakeBenchmark:
    """A benchmark of four tasks: easy/a, easy/b, hard/a, hard/c."""

    def make(toml: str) -> Path:
        for name in ("easy/a", "easy/b", "hard/a", "hard/c"):
            make_task(folder=f"bench/{name}")
        (tmp_path / "bench/benchmark.toml").write_text(toml)
        return tmp_path / "bench"

    return make


def _names(paths: list[Path], root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def test_a_task_a_folder_and_a_benchmark(benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at("name = 'b'\n")
    assert _names(find_tasks(root / "easy/a"), root) == ["easy/a"]
    assert _names(find_tasks(root / "easy/a/task.toml"), root) == ["easy/a"]
    assert _names(find_tasks(root / "hard"), root) == ["hard/a", "hard/c"]
    assert _names(find_tasks(root), root) == ["easy/a", "easy/b", "hard/a", "hard/c"]


def test_several_paths_give_each_task_once(benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at("name = 'b'\n")
    (root / "hard/link").symlink_to("../easy/a")
    assert len(find_tasks(root, root / "easy", root / "easy/a")) == 4


def test_a_tasks_own_folder_and_hidden_folders_are_not_searched(make_task: MakeTask) -> None:
    root = make_task(folder="all/one").parent
    make_task(folder="all/one/tests/inner")
    make_task(folder="all/.hidden/two")
    assert _names(find_tasks(root), root) == ["one"]


def test_links_in_a_circle_end(make_task: MakeTask) -> None:
    root = make_task(folder="all/one").parent
    (root / "again").symlink_to(".")
    assert len(find_tasks(root)) == 1


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("nothing", "nothing: does not exist"),
        ("file.txt", "file.txt: is a file"),
        ("empty", "empty: no task here: found no task.toml in it, nor in its folders"),
        ("almost", r"almost/x has an instruction\.md: write a task\.toml beside it"),
    ],
)
def test_nothing_found_says_what_was_looked_for(path: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "almost/x").mkdir(parents=True)
    (tmp_path / "almost/x/instruction.md").write_text("")
    with pytest.raises(UsageError, match=what):
        find_tasks(tmp_path / path)


def test_nothing_found_in_a_benchmark_names_it(benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at("name = 'b'\n")
    (root / "none").mkdir()
    with pytest.raises(UsageError, match=f"The benchmark around it is {root}"):
        find_tasks(root / "none")


def test_the_root_is_the_nearest_benchmark_upwards(benchmark_at: MakeBenchmark, make_task: MakeTask) -> None:
    root = benchmark_at("name = 'b'\n")
    assert find_root(root / "easy/a") == root
    assert find_root(root) == root
    alone = make_task(folder="alone")
    assert find_root(alone) == alone


SPLITS = "name = 'b'\nversion = '1'\n[splits]\ntrain = ['easy/*']\ntest = ['hard/*']\n"


def test_splits(benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at(SPLITS)
    assert load_benchmark(root) == Benchmark(name="b", version="1", root=root, train=("easy/*",), test=("hard/*",))
    assert _names(find_tasks(root, split=Split.TRAIN), root) == ["easy/a", "easy/b"]
    assert _names(find_tasks(root, split=Split.TEST), root) == ["hard/a", "hard/c"]
    assert _names(find_tasks(root / "hard/c", split=Split.TEST), root) == ["hard/c"]
    with pytest.raises(UsageError, match="none of its 2 tasks is in the train split"):
        find_tasks(root / "hard", split=Split.TRAIN)


@pytest.mark.parametrize(
    ("toml", "where", "what"),
    [
        ("", "benchmark.toml: name", "missing"),
        ("name = ", "benchmark.toml:1:8", "not valid TOML"),
        ("name = ' '", "benchmark.toml: name", "can't be a benchmark's name"),
        ("name = 'a/b'", "benchmark.toml: name", "without slashes"),
        ("name = 'a'\nverison = '1'", "benchmark.toml: verison", 'Did you mean "version"?'),
        ("name = 'a'\nversion = 1", "benchmark.toml: version", "must be text, not 1"),
        ("name = 'a'\n[splits]\ntrian = []", "benchmark.toml: splits.trian", 'Did you mean "train"?'),
        ("name = 'a'\n[splits]\ntrain = 'x'", "benchmark.toml: splits.train", "must be a list"),
        ("name = 'a'\n[splits]\ntrain = ['ok', '../x']", "benchmark.toml: splits.train[1]", "not a pattern below"),
        ("name = 'a'\n[splits]\ntest = ['/x']", "benchmark.toml: splits.test[0]", "not a pattern below"),
    ],
)
def test_bad_benchmark_files(toml: str, where: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "benchmark.toml").write_text(toml)
    with pytest.raises(TaskError) as caught:
        load_benchmark(tmp_path)
    (problem,) = caught.value.problems
    assert where in problem.where
    assert what in str(problem)


@pytest.mark.parametrize(
    ("splits", "what"),
    [
        ("train = ['easy/*']\ntest = ['*/a', 'hard/c']", "easy/a is in both train and test"),
        ("train = ['easy/*']\ntest = ['hrad/*']", r'splits\.test\[0\]: no task fits "hrad/\*"'),
        (None, "splits: this table is missing"),
    ],
)
def test_splits_that_do_not_hold(splits: str | None, what: str, benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at("name = 'b'\n" + (f"[splits]\n{splits}\n" if splits else ""))
    with pytest.raises(TaskError, match=what):
        find_tasks(root, split=Split.TRAIN)


def test_a_task_alone_has_no_split(make_task: MakeTask) -> None:
    with pytest.raises(UsageError, match="belongs to no benchmark"):
        find_tasks(make_task(), split=Split.TEST)


def test_one_bad_task_keeps_no_other_from_loading(benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at("name = 'b'\n")
    (root / "easy/b/instruction.md").unlink()
    (root / "hard/a").rename(root / "hard/d")
    loaded = load_tasks(find_tasks(root))
    assert [task.name for task in loaded.tasks] == ["a", "c", "d"]
    assert [path.name for path, _ in loaded.failures] == ["b"]


def test_two_tasks_of_one_name_in_a_benchmark_are_both_refused(benchmark_at: MakeBenchmark) -> None:
    root = benchmark_at("name = 'b'\n")
    loaded = load_tasks(find_tasks(root))
    assert [task.name for task in loaded.tasks] == ["b", "c"]
    assert [_names([path], root) for path, _ in loaded.failures] == [["easy/a"], ["hard/a"]]
    assert "has the same name, a. Rename a folder" in str(loaded.failures[0][1])
