"""A run file: what it may say, and one clear error for what it may not."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from esper.cli.running.fleet import example
from esper.errors import SettingError
from esper.runtime.crew import runfile
from esper.runtime.crew.runfile import RunFile, kinds, parse


def read(*lines: str) -> RunFile:
    return parse("\n".join(('name = "digits"', *lines)), "run.toml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('name = "a b"', "name is 'a b'; expected 1 to 40 letters"),
        ("regions = []", "regions is []; expected"),
        ('regions = ["r0", "r0"]', "regions is ['r0', 'r0']; expected names that are all different"),
        ('regions = ["r0", "r/1"]', "regions.1 is 'r/1'; expected 1 to 40 letters"),
        ('redis = "localhost"', "redis is 'localhost'; expected 'embedded', or a URL such as redis://localhost:6379/0"),
        ('redis = "secret@localhost"', "redis is 'localhost'; expected 'embedded', or a URL"),
        ('redis = "http://:secret@localhost"', "redis is 'http://localhost'; expected a URL that begins with redis://"),
        ('redis = "redis://:se/cret@localhost"', "redis is 'redis://localhost'; expected a password whose signs"),
        ("coordinator.count = -1", "coordinator.count is -1; expected greater than or equal to 0"),
        ('regional.count = "2"', "regional.count is '2'; expected a valid integer"),
        ("global = 1", "global is 1; expected a valid dictionary"),
        ("global.counts = 1", "global.counts is 1; expected a key that is known (near: 'count')"),
        ("regional.restart.limit = true", "regional.restart.limit is True; expected a valid integer"),
        ("restart.first_s = nan", "restart.first_s is nan; expected a finite number"),
        ("trainer.command = []", "trainer.command is []; expected"),
        ('trainer.command = "python"', "trainer.command is 'python'; expected a valid list"),
        ('trainer.stop_by = "prayer"', "trainer.stop_by is 'prayer'; expected 'file' or 'signal'"),
        ("limits.nice = 20", "limits.nice is 20; expected less than or equal to 19"),
        ("environment = {ESPER_RUN = 'x'}", "expected no ESPER_RUN: each process is given its own"),
        ("environment = {LEVEL = 3}", "environment.LEVEL is 3; expected a valid string"),
        ("[process.exporter]", "process.exporter.command is not set; expected a value: it has no default"),
        ("[process.x]\ncommand = ['x']\nkeys = 'king'", "process.x.keys is 'king'; expected"),
        ("[process.trainer]\ncommand = ['x']", "'trainer'; expected a name that no process of the run itself has"),
        ("[process.regional-r0]\ncommand = ['x']", "expected a name that no process of the run itself has"),
        ("[process.up]\ncommand = ['x']", "expected a name that no process of the run itself has"),
        ('trainer.command = ["a\\u0000b"]', "trainer.command.0 is 'a\\x00b'; expected no NUL character"),
        ('environment = {"A=B" = "x"}', "is 'A=B'; expected the name of a variable, without ="),
        ("limits.memory_mb = 9000000000000000000", "limits.memory_mb is 9000000000000000000; expected less than"),
        ("limits.core_mb = -1", "limits.core_mb is -1; expected greater than or equal to 0"),
        ("trainer.command = ['torchrun', 'x.py']", "trainer.count is 2; expected 1 where torchrun starts the ranks"),
        (
            "trainer = {count = 3, together = false, command = ['python', '-m', 'torch.distributed.run', 'x.py']}",
            "trainer.count is 3; expected 1 where torchrun starts the ranks",
        ),
        ("logs.kept = 0", "logs.kept is 0; expected greater than or equal to 1"),
        ('runs_dir = "a\\u0000b"', "runs_dir is 'a\\x00b'; expected no NUL character"),
        ('keys = "\\u0000"', "keys is '\\x00'; expected no NUL character"),
    ],
)
def test_a_bad_value_is_named_with_its_file_and_its_key(line: str, said: str) -> None:
    lines = [line] if line.startswith("name") else ['name = "digits"', line]

    with pytest.raises(SettingError) as refused:
        parse("\n".join(lines), "run.toml")

    assert str(refused.value).startswith("run.toml: ")
    assert said in str(refused.value)


def test_what_is_no_toml_or_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"run file is 'run.toml'; expected TOML .*line 2"):
        read("a = = b")
    for hostile in (f"a = {'1' * 5_000}", f"a = {'[' * 5_000}"):
        with pytest.raises(SettingError, match=r"run file is 'run.toml'; expected TOML "):
            read(hostile)
    with pytest.raises(SettingError, match=r"run file is '.*none.toml'; expected a readable file"):
        runfile.load(tmp_path / "none.toml")


def test_a_run_file_needs_a_name_alone() -> None:
    given = read()

    assert (given.regions, given.redis, given.trainer.count, given.coordinator.count) == (["r0"], "embedded", 2, 1)


def test_roles_take_from_above_what_they_do_not_say() -> None:
    given = read(
        "restart = {limit = 9, first_s = 2.0}",
        'environment = {A = "1", B = "2"}',
        'regional = {restart = {limit = 1}, environment = {B = "3"}}',
        "process.x = {command = ['x']}",
    )

    assert (given.regional.restart.limit, given.regional.restart.first_s) == (1, 2.0)
    assert given.regional.environment == {"A": "1", "B": "3"}
    for kind in (given.coordinator, given.global_, given.trainer, given.process["x"]):
        assert (kind.restart.limit, kind.environment) == (9, {"A": "1", "B": "2"})


def test_a_limit_above_that_of_whoever_starts_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (100, 100))

    with pytest.raises(SettingError, match=r"trainer.limits.open_files is 101; expected at most 100"):
        read("trainer.limits.open_files = 101")


def test_the_example_shows_every_key_with_the_value_that_holds_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (resource.RLIM_INFINITY,) * 2)  # some may open 1,024
    shown = re.sub(r"^# (?=\w+ = |\[process)", "", example(), flags=re.MULTILINE)
    whole, bare = parse(shown, "run.toml"), parse(example(), "run.toml")

    changed = {"keys", "passwords", "limits", "process", "environment"}
    for role, kind in kinds(bare).items():
        other = kinds(whole)[role]
        assert kind.model_dump(exclude=changed) == other.model_dump(exclude=changed), role
    above = changed | {"coordinator", "regional", "global_", "trainer"}
    assert bare.model_dump(exclude=above) == whole.model_dump(exclude=above)
    keys = set(re.findall(r"^(?:# )?(\w+) = ", example(), flags=re.MULTILINE))
    tables = {"environment", "restart", "limits", "logs", "coordinator", "regional", "global", "trainer", "process"}
    assert keys | tables >= set(runfile.KEYS)
