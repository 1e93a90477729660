"""Students of handwritten digits: when they reach an accuracy, and what a teacher's logits say beyond few labels."""

from __future__ import annotations

from functools import cache

import torch

from esper.bench.work.teachers.students import MOST_STEPS, Digits, Learnt, learnt

torch.set_num_threads(1)

digits = cache(Digits.load)


def test_a_student_is_timed_to_where_it_first_reads_a_goal() -> None:
    student = Learnt([0.5, 0.9, 0.8])  # after 5, 10 and 15 steps

    assert (student.steps_to(0.85), student.steps_to(0.95), student.after(15)) == (10, MOST_STEPS, 0.8)


def test_a_student_of_one_digit_reads_no_other_class() -> None:
    assert learnt(digits(), 0, distilled=False, num_steps=150, num_labelled=1).after(150) < 0.25


def test_where_digits_are_few_a_teacher_of_all_of_them_says_more_than_their_labels() -> None:
    without, taught = (
        learnt(digits(), 0, distilled=distilled, num_steps=300, num_labelled=60) for distilled in (False, True)
    )

    assert without.after(300) > 0.5  # it learns by itself, and
    assert taught.after(300) > without.after(300) + 0.02
