"""Replicas that train on after they were evicted, as what told them so is lost."""

from __future__ import annotations

from esper.leyline import contracts as pb

LINGER_NS = 5_000_000_000
"""One that reads its eviction ends well before; it may be at its boundary once more until then."""
MOST = 1_000


class Ghosts:
    """Notes since when each was heard from its boundary. A rank of a group ends with it, whatever it has read."""

    def __init__(self) -> None:
        self._since_ns: dict[tuple[str, int], int] = {}
        self._due: list[pb.EvictedProcess] = []

    def hear(self, heartbeat: pb.Heartbeat, now_ns: int) -> None:
        """Take a heartbeat of one that was evicted, or has left."""
        if heartbeat.world_size > 1 or heartbeat.repeated or heartbeat.HasField("report"):
            return
        process = heartbeat.worker, heartbeat.incarnation
        since_ns = self._since_ns.get(process)
        if since_ns is not None and now_ns - since_ns >= LINGER_NS:
            del self._since_ns[process]
            self._due.append(pb.EvictedProcess(worker=heartbeat.worker, incarnation=heartbeat.incarnation))
        elif since_ns is None or now_ns < since_ns:  # its clock was set back
            self._since_ns[process] = now_ns
            while len(self._since_ns) > MOST:
                self._since_ns.pop(next(iter(self._since_ns)))

    def due(self) -> list[pb.EvictedProcess]:
        """Who is to be told again; whoever lingers on then is given as long once more."""
        due, self._due = self._due, []
        return due
