"""What a Redis should be like for a run: rules over facts."""

from __future__ import annotations

from esper.bus.acl import enforceable
from esper.bus.client.version import numbers
from esper.bus.connect import OLDEST_SERVER
from esper.doctor.facts import FirstMessage, ServerFacts
from esper.runtime.operations.findings import Finding, Status, graded, judged
from esper.runtime.operations.health import SKEW_FAIL_S, SKEW_WARN_S

ROUND_TRIP_WARN_S, ROUND_TRIP_FAIL_S = 0.010, 0.500
MEMORY_WARN, MEMORY_FAIL = 0.80, 0.95
FIRST_MESSAGE_WARN_S, FIRST_MESSAGE_FAIL_S = 0.5, 5.0
WINDOW_WARN_S = 2.0
MIB = 1 << 20


def server_findings(facts: ServerFacts) -> list[Finding]:
    """One for each check, of one server."""
    checks = (
        version,
        commands,
        role,
        eviction,
        evicted,
        memory,
        persistence,
        last_writes,
        replicas,
        clock,
        latency,
        rights,
        strangers,
    )
    return [check(facts) for check in checks]


def unreachable(why: str) -> Finding:
    """All that there is to say of a server that does not answer."""
    todo = "start it, or mend --redis (ESPER_REDIS_URL), its user, its password, its certificates"
    met, expected = sides(why)
    return judged("redis", met, expected or "a Redis that answers", todo, "fail")


def shut_out(why: str) -> Finding:
    """Of a server that is there, and has users."""
    todo = (
        "give ESPER_REDIS_USERNAME and ESPER_REDIS_PASSWORD as passwords/RUN-observer.env has them (esper acl RUN); "
        "where they are what was given: ACL LOAD, so that the server knows them"
    )
    return judged("redis", sides(why)[0], "a user who is let in", todo, "fail")


def sides(why: str) -> tuple[str, str]:
    """What an error met, and what it expected where it says so."""
    met, _, expected = why.partition("; expected ")
    return met, expected


def version(facts: ServerFacts) -> Finding:
    status: Status = "fail" if numbers(facts.version) < OLDEST_SERVER else "ok"
    return judged("redis", f"{facts.version} at {facts.at}", "6.2 or newer", "upgrade Redis", status)


def commands(facts: ServerFacts) -> Finding:
    met = f"{', '.join(facts.lacks)} not known here" if facts.lacks else "all that a run gives are known"
    todo = "take them out of rename-command in redis.conf; users keep roles apart (esper acl)"
    return judged("redis commands", met, "all that a run gives", todo, "fail" if facts.lacks else "ok")


def role(facts: ServerFacts) -> Finding:
    todo = "give the primary's URL, or redis+sentinel:// where Sentinels know who that is"
    return judged("redis role", facts.role, "master", todo, "ok" if facts.role == "master" else "fail")


def eviction(facts: ServerFacts) -> Finding:
    """Any other policy may delete what was acknowledged."""
    todo = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
    return judged("eviction policy", facts.policy, "noeviction", todo, "ok" if facts.policy == "noeviction" else "fail")


def evicted(facts: ServerFacts) -> Finding:
    todo = "what was evicted is lost: take another Redis for runs, or give this one more memory and noeviction"
    status: Status = "warn" if facts.num_evicted else "ok"
    return judged("evicted keys", f"{facts.num_evicted} since it began", "none", todo, status)


def memory(facts: ServerFacts) -> Finding:
    """Against maxmemory; where there is none, against all that the machine has."""
    most = facts.max_memory_bytes or facts.total_memory_bytes
    used = facts.used_memory_bytes / most if most else 0.0
    bound = "maxmemory" if facts.max_memory_bytes else "the machine's"
    return judged(
        "memory",
        f"{facts.used_memory_bytes // MIB} "
        + (f"of {most // MIB} MiB ({bound})" if most else "MiB, of an unknown sum"),
        f"at most {MEMORY_WARN:.0%} in use",
        "raise maxmemory, purge what is no longer needed, or trim logs: ESPER_ARCHIVE for the coordinator",
        graded(used, MEMORY_WARN, MEMORY_FAIL),
    )


def persistence(facts: ServerFacts) -> Finding:
    hidden = "look as a user who may read settings: esper-admin, or one of esper acl --durable"
    todo = "CONFIG SET appendonly yes, appendfsync everysec (always for ESPER_DURABILITY=durable), then CONFIG REWRITE"
    bounded = facts.durable or (facts.window_s is not None and facts.window_s <= WINDOW_WARN_S)
    return judged(
        "persistence",
        facts.promise,
        "an append-only file, synced every second or always",
        todo if facts.tells_settings else hidden,
        "ok" if bounded else "warn",
    )


def last_writes(facts: ServerFacts) -> Finding:
    todo = "see Redis's log: its disk is full, or may not be written to"
    met = "the last one succeeded" if facts.last_writes_well else "the last one failed"
    return judged("writes to disk", met, "success", todo, "ok" if facts.last_writes_well else "fail")


def replicas(facts: ServerFacts) -> Finding:
    """A server that has fewer than it wants refuses every write."""
    met, least = facts.num_replicas, facts.num_replicas_wanted
    return judged(
        "replicas",
        f"{met} connected",
        f"{least} or more (min-replicas-to-write)" if least else "any number: none is asked for",
        "start the replicas, or lower min-replicas-to-write: until then writes are refused",
        "fail" if met < least else "ok",
    )


def clock(facts: ServerFacts) -> Finding:
    return judged(
        "clock skew",
        f"this machine is {facts.skew_s:+.3f} s from Redis, within {facts.round_trips_s[0] / 2 * 1e3:.1f} ms",
        f"within {SKEW_WARN_S:g} s; a seal is fresh for 60 s",
        "let NTP set the clocks of this machine and of Redis (timedatectl, chronyc tracking)",
        graded(abs(facts.skew_s), SKEW_WARN_S, SKEW_FAIL_S),
    )


def latency(facts: ServerFacts) -> Finding:
    """A round takes a handful of round trips, a settlement one."""
    trips = facts.round_trips_s
    median_s = trips[len(trips) // 2]
    return judged(
        "round trip",
        f"{1e3 * median_s:.2f} ms at the median, {1e3 * trips[-1]:.2f} ms at most, of {len(trips)}",
        f"at most {1e3 * ROUND_TRIP_WARN_S:g} ms at the median",
        "run Redis nearer to the workers; see SLOWLOG GET, and whether its machine swaps",
        graded(median_s, ROUND_TRIP_WARN_S, ROUND_TRIP_FAIL_S),
    )


def rights(facts: ServerFacts) -> Finding:
    """Whether each role could be held to its own streams, and whether this connection is."""
    can = enforceable(facts.version)
    status: Status = "ok" if can and facts.user not in (None, "default") else "warn"
    said = f"connected as {facts.user}" if facts.user else "the server does not tell who we are"
    todo = "esper acl RUN --out users.acl, and name it as aclfile in redis.conf" if can else "upgrade Redis to 7.0"
    met = said if can else f"{said}; roles can't be kept apart on {facts.version}"
    return judged("acl", met, "a user of its own for each role", todo, status)


def strangers(facts: ServerFacts) -> Finding:
    """What somebody may do who gives no name. Where nobody has a name, all come so, as to an embedded server."""
    expected, todo, default = (
        "nobody let in without a name",
        "esper acl RUN --out users.acl, then ACL LOAD",
        facts.default_user,
    )
    if default is None:
        return judged("default user", "the server does not tell of it", expected, "", "ok")
    if default.lets_in and facts.named_users:
        may = "may do everything, although roles have users of their own" if default.all_rights else "is let in"
        return judged("default user", f"whoever gives no name {may}", expected, todo, "warn")
    if default.all_rights is False:  # seen with 7.0.15
        met = "may not do everything: with a restart Redis leaves out what it may not, of its own append-only file"
        return judged("default user", met, "off, with all rights", todo, "warn")
    met = "whoever reaches it may do everything: nobody has a name" if default.lets_in else expected
    return judged("default user", met, expected, "", "ok")


def arrival(message: FirstMessage) -> Finding:
    """The whole way that a command goes, with its scripts."""
    expected = f"published, read and settled within {FIRST_MESSAGE_WARN_S:g} s"
    if message.may_not:
        met = "not measured: this user may touch streams of its role alone"
        return judged("first message", met, expected, "", "ok")
    if message.why:
        todo = "mend what is said here: a run would meet the same"
        return judged("first message", message.why, expected, todo, "fail")
    return judged(
        "first message",
        f"after {1e3 * message.seconds:.1f} ms, sealed, read, settled by a script and removed",
        expected,
        "see the round trip above, and the load of this machine",
        graded(message.seconds, FIRST_MESSAGE_WARN_S, FIRST_MESSAGE_FAIL_S),
    )
