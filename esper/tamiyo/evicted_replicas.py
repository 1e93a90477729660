"""Replicas that train on after they were evicted, as what told them so is lost."""

from __future__ import annotations

from esper.leyline import contracts as pb

LINGER_NS = 5_000_000_000
"""One that reads its eviction ends well before; it may be at its boundary once more until then."""
LONGEST_NS = 600_000_000_000
"""Each further time is as long again after the last: who can read nothing, as without the newest key, is told for as
long as it trains, and a coordinator that begins reads only so many decisions."""
MOST = 1_000


class EvictedReplicas:
    """Notes since when each was heard from its boundary. A rank of a group ends with it, whatever it has read."""

    def __init__(self) -> None:
        self._waits_ns: dict[tuple[str, int], tuple[int, int]] = {}  # since when, and for how long
        self._due: dict[tuple[str, int], None] = {}

    def hear(self, heartbeat: pb.Heartbeat, now_ns: int) -> None:
        """Take a heartbeat of one that was evicted, or has left."""
        if heartbeat.world_size > 1 or heartbeat.repeated or heartbeat.HasField("report"):
            return
        process = heartbeat.worker, heartbeat.incarnation
        since_ns, for_ns = self._waits_ns.get(process, (now_ns, LINGER_NS))
        if now_ns - since_ns >= for_ns:
            self._due[process] = None
            since_ns, for_ns = now_ns, min(2 * for_ns, LONGEST_NS)
        self._waits_ns[process] = min(since_ns, now_ns), for_ns  # the clock may have been set back
        while len(self._waits_ns) > MOST:
            self._waits_ns.pop(next(iter(self._waits_ns)))

    def due(self) -> list[pb.EvictedProcess]:
        """Who is to be told again, each once."""
        due, self._due = self._due, {}
        return [pb.EvictedProcess(worker=worker, incarnation=incarnation) for worker, incarnation in due]
