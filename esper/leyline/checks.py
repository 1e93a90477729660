"""What is checked of an envelope whose seal fits: its context, its age, its deadline."""

from __future__ import annotations

from collections.abc import Collection

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind, Header, cap_of
from esper.leyline.kinds import Domain, domain_of_kind

FRESH_MS = 60_000
# An entry id further ahead of the server's clock than this was not made by that clock.
CLOCK_SLACK_MS = 1_000
MS_NS = 1_000_000


def check_body(domain: Domain, body: bytes) -> None:
    """Refuse a body over its domain's cap."""
    cap = cap_of(domain)
    if len(body) > cap:
        raise RefusedError(
            pb.ReasonCode.REASON_OVERSIZE, f"{domain.name.lower()} body of {len(body)} bytes; expected at most {cap}"
        )


def check_context(header: Header, run_id: str, accept: Collection[Domain], targets: Collection[str]) -> None:
    """Refuse what was sealed for another run, domain or target, or names a kind that does not travel there."""
    if header.run_id != run_id:
        raise _wrong_context("run", header.run_id, run_id)
    if header.domain not in accept:
        accepted = sorted(domain.name.lower() for domain in accept)
        raise _wrong_context("domain", header.domain.name.lower(), " or ".join(accepted))
    if header.target not in targets:
        raise _wrong_context("target", header.target, " or ".join(sorted(targets)))
    if domain_of_kind(header.kind) is not header.domain:
        raise RefusedError(
            pb.ReasonCode.REASON_WRONG_TYPE, f"kind {header.kind} does not travel in {header.domain.name.lower()}"
        )


def check_fresh(header: Header, at_ms: int) -> None:
    """Refuse what was not sealed within a minute of its entry."""
    ahead_ms = header.issued_at_ns // MS_NS - at_ms
    if abs(ahead_ms) > FRESH_MS:
        stale, early = pb.ReasonCode.REASON_STALE, pb.ReasonCode.REASON_FROM_THE_FUTURE
        reason, side = (early, "after") if ahead_ms > 0 else (stale, "before")
        off = f"sealed {abs(ahead_ms) / 1000:.1f} s {side} its entry was made, by the clock of who sealed it"
        raise RefusedError(reason, f"{off}; expected at most {FRESH_MS // 1000} s")


def check_deadline(header: Header, now_ms: int) -> None:
    """Refuse what is read after its deadline in time; other deadlines are the judge's."""
    if header.deadline_kind is DeadlineKind.TIME_NS and now_ms * MS_NS > header.deadline:
        late_s = now_ms / 1000 - header.deadline / 1e9
        raise RefusedError(pb.ReasonCode.REASON_PAST_DEADLINE, f"read {late_s:.3f} s after its deadline")


def _wrong_context(what: str, met: str, expected: str) -> RefusedError:
    return RefusedError(pb.ReasonCode.REASON_WRONG_CONTEXT, f"{what} is {met!r}; expected {expected}")
