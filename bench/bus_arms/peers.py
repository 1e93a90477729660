"""Who else carries messages over Redis for Python."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, slots=True)
class Peer:
    """A library, and the module here that drives it."""

    name: str
    package: str
    module: str

    def is_here(self) -> bool:
        return find_spec(self.package) is not None


PEERS = (
    Peer("FastStream", "faststream", "peer_faststream"),
    Peer("taskiq-redis", "taskiq_redis", "peer_taskiq"),
    Peer("arq", "arq", "peer_arq"),
    Peer("docket", "docket", "peer_docket"),
)
