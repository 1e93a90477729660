"""A live run is loaded from outside, several ways at once; it goes on, and every request is answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from esper.bench.load import results
from tests.system.processes import Esper

LOADS = ("--kind command --rate 20", "--kind telemetry --rate 400", "--kind telemetry --rate 100")
WATCH = "--kind barrier --rate 1 --seconds 1000"
FILE = """
name = "loaded"
trainer.count = 1
"""


def test_several_workers_load_a_run_at_once_and_their_results_add_up(
    swift: Callable[..., Esper], runtime: Path, tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(FILE)
    run = swift("up", "-f", tmp_path / "run.toml")
    run.says("step 1", "step 2", "step 3")

    files = [tmp_path / f"{number}.json" for number in range(len(LOADS) + 1)]
    *workers, watch = (
        swift("bench", "worker", "--run", "loaded", *words.split(), "--out", file)
        for words, file in zip([f"{load} --seconds 1 --patience 30" for load in LOADS] + [WATCH], files, strict=True)
    )
    watch.says("committed")
    watch.interrupt()

    assert [worker.ended() for worker in workers] == [0, 0, 0]
    assert watch.ended() == 130
    command, packets, rounds = results.summed(map(results.read, files))
    assert (command.tally.counts["applied"], command.tally.main.num) == (20, 20)
    assert (packets.tally.counts["folded"], packets.tally.main.num, packets.num_workers) == (500, 500, 2)
    assert rounds.tally.counts["committed"] == rounds.tally.main.num > 0
    run.says("step")
