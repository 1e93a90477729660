"""The figures of a trainer as its newest heartbeat tells them: its own process answers no scrapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from esper.leyline.lifecycle import short
from esper.runtime.beside.heartbeat_repeater import HeartbeatRepeater
from esper.runtime.operations.catalogue import gauge
from esper.runtime.operations.figures import counted, shown


class TrainerMetrics(Collector):
    """Shows nothing before the first heartbeat."""

    def __init__(self, repeater: HeartbeatRepeater) -> None:
        self.repeater = repeater

    def collect(self) -> Iterator[Metric]:
        """What a scrape asks for."""
        beat = self.repeater.last
        if beat is None:
            return
        worker = beat.worker
        yield shown("esper_trainer_heartbeat_age_seconds", self.repeater.age_s, worker)
        yield shown("esper_trainer_step", beat.step, worker)
        yield shown("esper_trainer_epoch", beat.epoch, worker)
        yield shown("esper_trainer_loss", beat.loss, worker)
        yield shown("esper_trainer_accuracy_ratio", beat.accuracy, worker)
        yield counted("esper_trainer_examples_total", beat.examples, worker)
        yield counted("esper_trainer_packets_total", beat.packets, worker)
        yield counted("esper_trainer_packets_shed_total", beat.shed, worker)
        yield counted("esper_trainer_steps_waited_total", beat.steps_waited, worker)
        seeds = gauge("esper_trainer_seeds")
        for stage, number in Counter(short(state.stage) for state in beat.seeds).items():
            seeds.add_metric((worker, stage.lower()), number)
        yield seeds
