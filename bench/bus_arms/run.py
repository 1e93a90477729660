"""The process of one arm: reads one call a line, runs it as our processes run, answers in one line."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from importlib import import_module

import uvloop

from esper.bench.rounds.lines import given
from esper.runtime.gc_policy import collect_seldom
from esper.runtime.sorting import load_numpy


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the log, not between the answers
    name = given()["name"].partition(":")[0]
    load_numpy()
    module = import_module(name if "." in name else f"bus_arms.{name}")
    collect_seldom()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            call = json.loads(line)
            gc.collect()
            answer = runner.run(getattr(module, call["call"])(**call["given"]))
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
