"""What a live run should be like: who may touch its streams, and what waits in them. Rules over facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from esper.bus.acl import USERS, adds, joins, looks, user_name
from esper.bus.names import STREAMS
from esper.bus.upkeep.survey import Group, StreamView
from esper.doctor.facts import Rights
from esper.leyline.entries import LAST_ID
from esper.leyline.kinds import Role
from esper.runtime.operations.findings import Finding, judged

PENDING_WARN_S = 60.0
LAG_WARN = 1_000


def stream_findings(views: Sequence[StreamView]) -> list[Finding]:
    """One for each stream without an id left, and for each group that is behind; else one for all."""
    groups = [(view.name, group) for view in views for group in view.groups]
    met = f"{len(groups)} groups of {len(views)} streams keep up"
    well = [judged("streams", met, "no group behind", "", "ok")]
    full = [used_up(view.name) for view in views if not view.has_ids]
    return [*full, *(behind(name, group) for name, group in groups if is_behind(group))] or well


def unseen() -> Finding:
    """Of a user whose role has no business with how others keep up."""
    return judged(
        "streams", "not looked at: this user may touch streams of its role alone", "no group behind", "", "ok"
    )


def is_behind(group: Group) -> bool:
    """More unread than can be counted at leisure, or something handed out long ago and never settled."""
    return group.lag is None or group.lag > LAG_WARN or group.oldest_pending_s > PENDING_WARN_S


def used_up(name: str) -> Finding:
    return judged(
        f"stream {name}",
        "it has an entry with the last id there is: nothing can be added to it any more",
        "ids by the server's clock",
        f"as an administrator: XDEL the entry {LAST_ID}, XSETID the stream to the id of the newest one left, and "
        "XGROUP SETID each group that has read the entry to that id",
        "fail",
    )


def behind(name: str, group: Group) -> Finding:
    lag = f"more than {LAG_WARN}" if group.lag is None else group.lag
    return judged(
        f"stream {name}",
        f"{group.name}: {lag} unread, {group.pending} pending, the oldest for {group.oldest_pending_s:.0f} s",
        f"at most {LAG_WARN} unread, none pending for {PENDING_WARN_S:g} s",
        f"see that {group.name} runs and keeps up; one that is gone for good: esper streams forget {group.name}",
        "warn",
    )


def role_of(run_id: str, user: str, roles: Iterable[Role]) -> str | None:
    """Which of the users of `esper acl` this is: by its name, else by the roles of its keyring. None: none of them."""
    named = [role for role in USERS if user_name(run_id, role) == user]
    held = {role.value for role in roles}
    return next(iter(named or [role for role, needs in USERS.items() if needs and held == {*needs}]), None)


def rights_finding(role: str, found: Rights) -> Finding:
    """What the user lacks of its role's rights stops it; what it has beyond them is a door left open."""
    needs = Rights(
        role,
        adds=frozenset(row.name for row in STREAMS if adds(row, role)),
        reads=frozenset(row.name for row in STREAMS if joins(row, role) or looks(row, role)),
    )
    lacks, has = difference(needs, found), difference(found, needs)
    told = [*(f"may not {each}" for each in lacks), *(f"may also {each}" for each in has)]
    return judged(
        "acl rights",
        f"{found.user} {'; '.join(told) or 'may do what its role needs, and no more'}",
        f"the rights of {role} alone",
        "esper acl RUN --out users.acl, then ACL LOAD",
        "fail" if lacks else "warn" if has else "ok",
    )


def difference(some: Rights, others: Rights) -> list[str]:
    """What the first may and the second may not, in words."""
    ways = {"add to": some.adds - others.adds, "read": some.reads - others.reads}
    return [f"{way} {', '.join(sorted(streams))}" for way, streams in ways.items() if streams]
