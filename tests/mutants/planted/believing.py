"""Planted bugs: what is believed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "seal_not_checked_once_its_producer_is_known",
        "esper/leyline/seal.py",
        "        if not hmac.compare_digest(route.mac.digest(data[:_SEAL_AT]), data[_SEAL_AT:]):\n",
        "        if False:\n",
        ("tests/test_routes.py::test_met_before_or_not_the_verdict_is_the_same",),
    ),
    Mutant(
        "verified_after_it_is_parsed",
        "esper/leyline/seal.py",
        "        self._check_seal(data, parts, mac)\n        check_context(",
        "        type_of(header.kind).FromString(data[parts.body_start : parts.body_end])\n"
        "        self._check_seal(data, parts, mac)\n        check_context(",
        ("tests/test_envelope.py::test_a_body_that_is_not_authentic_is_never_parsed",),
    ),
    Mutant(
        "freshness_by_the_readers_clock",
        "esper/leyline/seal.py",
        "at_ms = now_ms if clock_suspect else entry_ms",
        "at_ms = now_ms",
        ("tests/test_envelope.py::test_a_message_is_fresh_within_a_minute_of_its_entry",),
    ),
    Mutant(
        "poisoned_clock_of_a_stream_is_believed",
        "esper/leyline/seal.py",
        "at_ms = now_ms if clock_suspect else entry_ms",
        "at_ms = entry_ms",
        ("tests/test_envelope.py::test_an_entry_ahead_of_the_servers_clock_is_aged_by_the_reading_and_marked",),
    ),
    Mutant(
        "a_remembered_key_outlives_its_retirement",
        "esper/leyline/seal.py",
        " or not route.from_ms <= at_ms < route.until_ms:\n",
        ":\n",
        ("tests/test_routes.py::test_a_key_that_is_retired_is_refused_though_its_producer_was_met",),
    ),
    Mutant(
        "keys_taken_up_anew_are_not_looked_at",
        "esper/leyline/seal.py",
        "route.cap or route.keyring_version != self._keyring.version:",
        "route.cap:",
        ("tests/test_live_keys.py::test_a_key_that_is_retired_while_in_use_opens_and_seals_no_more",),
    ),
    Mutant(
        "the_domain_is_not_part_of_the_key",
        "esper/leyline/keys/derive.py",
        "(_PROTOCOL, run_id, domain.name.lower(), role.value))",
        "(_PROTOCOL, run_id, role.value))",
        ("tests/test_envelope.py::test_derived_keys_differ_by_run_domain_and_role",),
    ),
    Mutant(
        "messages_for_another_target_are_opened",
        "esper/leyline/checks.py",
        "if header.target not in targets:",
        "if header.target in targets and False:",
        ("tests/test_envelope.py::test_a_message_for_another_target_is_out_of_context",),
    ),
    Mutant(
        "a_replay_counts_as_a_redelivery",
        "esper/leyline/replay.py",
        "if seen != met:",
        "if seen[16:] != met[16:]:",
        ("tests/test_replay.py::test_the_same_bytes_under_another_entry_are_replayed",),
    ),
    Mutant(
        "a_message_of_another_version_is_believed",
        "esper/leyline/seal.py",
        "        if message.version != bounds.VERSION:\n            bounds.version(message)\n",
        "",
        ("tests/test_envelope.py::test_another_version_of_the_message_is_refused_whoever_sealed_it",),
    ),
    Mutant(
        "what_was_seen_is_not_persisted",
        "esper/leyline/replay.py",
        "                    fields[field_name(name, slot)] = value\n",
        "                    pass\n",
        ("tests/test_replay.py::test_a_restart_forgets_nothing_that_was_persisted",),
    ),
    Mutant(
        "a_late_first_delivery_is_taken_for_a_replay",
        "esper/leyline/window.py",
        "        if at % 2 == 0:\n            return BELOW\n",
        "        return BELOW\n",
        ("tests/test_replay.py::test_below_the_window_what_was_met_is_replayed_and_what_was_not_is_new",),
    ),
)
