"""Which orders have led to the state that a rank holds, by their number and one digest."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.digest import NONE_YET, orders_digest


class Orders:
    """Goes with checkpoints, and is not rewound by a rollback, which is an order itself.

    A log that tells of others has lost some, or tells of what died with a process.
    """

    def __init__(self) -> None:
        self.num, self.digest = 0, NONE_YET

    def note(self, commit: pb.BarrierCommit) -> None:
        """It was carried out. Where it is not known what came before, the digest stays empty."""
        self.num += 1
        if self.digest:
            self.digest = orders_digest(self.digest, commit)
