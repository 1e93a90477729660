"""Checkpoints of a model of 5 M parameters and their restoring, beside writing the same bytes."""

from __future__ import annotations

from esper.bench.arm import Ready
from esper.bench.work.ranks import Rank, write

WIDTH = 1024


def written() -> Ready:
    """Other work: the bytes of weights and moments, and nothing that says what they are."""
    rank = Rank(WIDTH)
    blob = b"".join(each.numpy().tobytes() for each in rank.live)
    return Ready(lambda: write(rank.folder / "plain", blob), close=rank.close)


def saved() -> Ready:
    """It answers with what its newest checkpoint brings back."""
    rank = Rank(WIDTH)

    def answer() -> bytes:
        rank.harm()
        rank.restore()
        return rank.state()

    return Ready(rank.save, answer, close=rank.close)


def restored() -> Ready:
    rank = Rank(WIDTH)
    rank.save()
    return Ready(rank.restore, rank.state, before=rank.harm, close=rank.close)
