"""Planted bugs: liveness and readiness, what is shown to Prometheus, the doctor."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

HEALTH = "esper/runtime/operations/health.py"
HEALTH_TESTS, VITALS_TESTS, DOCTOR_TESTS = "tests/test_metrics.py", "tests/test_vitals.py", "tests/test_doctor.py"

MUTANTS = (
    Mutant(
        "a_redis_that_is_away_kills_what_waits",
        HEALTH,
        "if since_s is None or not self.is_up():",
        "if since_s is None:",
        (f"{HEALTH_TESTS}::test_a_redis_that_is_away_makes_a_process_unready_and_lets_it_live",),
    ),
    Mutant(
        "the_ten_seconds_begin_before_redis_is_back",
        HEALTH,
        "self._progress(name, last_s(), since_s)",
        "self._progress(name, last_s(), last_s())",
        (f"{HEALTH_TESTS}::test_a_redis_that_is_away_makes_a_process_unready_and_lets_it_live",),
    ),
    Mutant(
        "a_clock_that_is_behind_is_well",
        HEALTH,
        "graded(abs(skew_s), SKEW_WARN_S",
        "graded(skew_s, SKEW_WARN_S",
        (f"{HEALTH_TESTS}::test_readiness_names_what_is_wrong_and_what_to_do",),
    ),
    Mutant(
        "keys_with_a_gap_between_them_pass",
        HEALTH,
        "if each.not_before_ns <= until_ns < each.not_after_ns:",
        "if until_ns < each.not_after_ns:",
        (f"{HEALTH_TESTS}::test_a_keyring_is_fit_while_some_key_is_valid_without_a_gap",),
    ),
    Mutant(
        "the_lag_is_that_of_the_oldest_entry_kept",
        "esper/runtime/operations/vitals.py",
        '("XRANGE", stream, b"(" + last, "+", "COUNT", "1")',
        '("XRANGE", stream, "-", "+", "COUNT", "1")',
        (f"{VITALS_TESTS}::test_the_lag_is_the_age_of_the_oldest_entry_that_was_not_read",),
    ),
    Mutant(
        "writes_that_redis_refuses_are_not_seen",
        "esper/runtime/operations/vitals.py",
        'vitals.why, vitals.waiting = clock(), "", self.outage.said',
        'vitals.why, vitals.waiting = clock(), "", ""',
        (f"{VITALS_TESTS}::test_what_waits_for_redis_is_named_while_it_answers",),
    ),
    Mutant(
        "a_metric_goes_by_a_name_that_nobody_looks_for",
        "esper/runtime/beside/trainer_figures.py",
        'shown("esper_trainer_step", beat.step',
        'shown("esper_trainer_epoch", beat.step',
        ("tests/test_metric_names.py::test_the_runtime_shows_the_figures_of_its_trainer",),
    ),
    Mutant(
        "the_doctor_leaves_its_message_behind",
        "esper/doctor/first_message.py",
        'await writer.execute_command("DEL", stream, outbox.memory(stream))',
        "pass",
        (f"{DOCTOR_TESTS}::test_a_message_really_goes_all_the_way_and_leaves_nothing_behind",),
    ),
    Mutant(
        "the_doctor_passes_a_redis_that_evicts",
        "esper/doctor/server_checks.py",
        '"ok" if facts.policy == "noeviction" else "fail"',
        '"ok"',
        (f"{DOCTOR_TESTS}::test_a_server_is_judged_by_each_of_its_facts",),
    ),
)
