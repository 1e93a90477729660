"""Simulated members beat at moments of their own, also where they share a process and are held up together."""

from __future__ import annotations

import pytest

from esper.bench.rounds.members import BEAT_S, next_beat_s


def test_members_that_were_held_up_together_go_on_at_moments_of_their_own() -> None:
    phases = [rank / 64 for rank in range(64)]
    held_up_until_s = 10.0

    at_s = [next_beat_s(9.0 + BEAT_S * phase, held_up_until_s) for phase in phases]

    assert [each % BEAT_S / BEAT_S for each in at_s] == pytest.approx(phases)
    assert all(held_up_until_s <= each <= held_up_until_s + BEAT_S for each in at_s)


def test_a_member_that_is_in_time_beats_again_after_a_whole_interval() -> None:
    assert next_beat_s(3.0, 3.0) == 3.0 + BEAT_S
    assert next_beat_s(3.0, 3.1) == 3.0 + BEAT_S
