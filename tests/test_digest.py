"""A digest of parameters tells any two states apart that differ in one element or in an exchange of two."""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given, strategies as st

from esper.tolaria.digest import CHUNK, parameter_digest, strong_digest

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def one(tensor: torch.Tensor) -> bytes:
    return parameter_digest([("weight", tensor)])


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int8, torch.complex64])
def test_any_single_element_changes_the_digest(dtype: torch.dtype) -> None:
    plain = torch.arange(12).to(dtype).reshape(3, 4)

    digests = {one(plain)}
    for index in range(12):
        changed = plain.clone()
        changed.view(-1)[index] += 1
        digests.add(one(changed))

    assert len(digests) == 13


@pytest.mark.parametrize("dtype", FLOATS)
@given(
    values=st.lists(st.floats(-60000, 60000, width=16), min_size=2, max_size=40, unique=True),
    pick=st.data(),
)
def test_two_elements_exchanged_change_the_digest(dtype: torch.dtype, values: list[float], pick: st.DataObject) -> None:
    tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
    first, second = pick.draw(st.lists(st.integers(0, len(values) - 1), min_size=2, max_size=2, unique=True))
    exchanged = tensor.clone()
    exchanged[[first, second]] = tensor[[second, first]]

    assert (one(exchanged) == one(tensor)) == bool(tensor[first] == tensor[second])


def test_a_value_exchanged_with_its_negative_changes_the_digest_of_doubles() -> None:
    tensor = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)

    assert one(tensor) != one(tensor.flip(0))


def test_negative_zero_counts_as_zero() -> None:
    assert one(torch.tensor([-0.0, 1.0])) == one(torch.tensor([0.0, 1.0]))
    assert strong_digest([("w", torch.tensor([-0.0]))]) == strong_digest([("w", torch.tensor([0.0]))])


def test_names_shapes_and_dtypes_count_and_the_order_given_does_not() -> None:
    a, b = torch.zeros(2, 3), torch.ones(2)

    digests = [
        parameter_digest([("a", a), ("b", b)]),
        parameter_digest([("a", a), ("c", b)]),
        parameter_digest([("a", a.reshape(3, 2)), ("b", b)]),
        parameter_digest([("a", a.double()), ("b", b)]),
        parameter_digest([("a", a)]),
    ]

    assert len(set(digests)) == 5
    assert parameter_digest([("b", b), ("a", a)]) == digests[0]


def test_position_counts_across_chunks() -> None:
    tensor = torch.zeros(CHUNK + 5)
    tensor[0] = 1.0
    moved = torch.zeros(CHUNK + 5)
    moved[CHUNK] = 1.0

    assert len({one(tensor), one(moved), one(torch.zeros(CHUNK + 5))}) == 3


def test_the_sum_is_the_one_that_numpy_finds() -> None:
    values = numpy.random.default_rng(5).normal(size=CHUNK + 77).astype(numpy.float32)
    bits = values.view(numpy.int32).astype(numpy.int64)
    with numpy.errstate(over="ignore"):
        expected = int((bits * (2 * numpy.arange(len(bits), dtype=numpy.int64) + 1)).sum())

    from esper.tolaria.digest import _sums

    assert _sums(torch.from_numpy(values)).tolist() == [expected]


def test_layout_in_memory_does_not_count() -> None:
    tensor = torch.arange(12.0).reshape(3, 4)

    assert one(tensor.t().contiguous().t()) == one(tensor)


@pytest.mark.parametrize("tensor", [torch.tensor(3.0), torch.empty(0), torch.tensor([True, False])])
def test_scalars_nothing_and_booleans_have_digests(tensor: torch.Tensor) -> None:
    assert len(one(tensor)) == len(strong_digest([("w", tensor)])) == 32
