"""A digest of parameters tells any two states apart that differ in one element or in an exchange of two."""

from __future__ import annotations

import hashlib

import numpy
import pytest
import torch
from hypothesis import given, strategies as st

from esper.tolaria.digest import CHUNK_CPU, ROW, parameter_digest, strong_digest

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


def test_position_counts_across_rows_and_columns() -> None:
    size = 4 * ROW + 5
    digests = {one(torch.zeros(size))}
    for place in (0, 1, 2, 2 * ROW, 2 * ROW + 1, 4 * ROW + 4):
        digests.add(one(torch.zeros(size).index_fill(0, torch.tensor([place]), 1.0)))

    assert len(digests) == 7


@pytest.mark.parametrize("apart", [1, 2, 2 * ROW, 2 * ROW + 1])
def test_a_sign_that_moves_changes_the_digest_wherever_it_goes(apart: int) -> None:
    tensor = torch.ones(4 * ROW)
    tensor[0] = -1.0
    moved = torch.ones(4 * ROW)
    moved[apart] = -1.0

    assert one(tensor) != one(moved)


def test_what_is_taken_from_one_element_and_given_to_another_changes_the_digest() -> None:
    tensor = torch.zeros(4 * ROW, dtype=torch.int64)
    digests = {one(tensor)}
    for first, second in ((0, 1), (0, ROW), (0, ROW + 1), (ROW // 64, 0), (5, 6)):
        changed = tensor.clone()
        changed[first], changed[second] = 7, -7
        digests.add(one(changed))

    assert len(digests) == 6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_digest_is_the_one_that_numpy_finds(dtype: torch.dtype) -> None:
    large, small = torch.randn(100_000).to(dtype), torch.randn(77).to(dtype)
    large[3] = -0.0
    counted = large.clone()
    counted[3] = 0.0
    whole = len(large.view(torch.uint8)) // (8 * ROW) * 8 * ROW
    rest = counted.view(torch.uint8)[whole:].numpy().tobytes() + small.view(torch.uint8).numpy().tobytes()
    laid = counted.view(torch.uint8)[:whole].numpy().tobytes() + rest + bytes(-len(rest) % (8 * ROW))
    rows = numpy.frombuffer(laid, numpy.int64).reshape(-1, ROW)
    folded = rows.sum(0).reshape(64, -1)

    expected = hashlib.sha256(f"a\0(100000,)\0{dtype}\nb\0(77,)\0{dtype}\n".encode())
    expected.update(numpy.concatenate([folded.sum(0), folded.sum(1), rows.sum(1)]).tobytes())

    assert parameter_digest([("b", small), ("a", large)]) == expected.digest()


def test_the_lowest_integer_is_not_taken_for_a_negative_zero() -> None:
    lowest = torch.tensor([torch.iinfo(torch.int32).min, 1], dtype=torch.int32)

    assert one(lowest) != one(torch.tensor([0, 1], dtype=torch.int32))


def test_where_a_tensor_lies_does_not_count() -> None:
    values = torch.arange(3 * ROW + 1.0)

    assert one(values[1:]) == one(values[1:].clone())
    assert one(values[::2]) == one(values[::2].clone())


def test_threads_and_chunks_do_not_count() -> None:
    tensor, threads = torch.randn(CHUNK_CPU * 5), torch.get_num_threads()
    torch.set_num_threads(1)
    alone = one(tensor)
    torch.set_num_threads(2)
    together = one(tensor)
    torch.set_num_threads(threads)

    assert alone == together


def test_layout_in_memory_does_not_count() -> None:
    tensor = torch.arange(12.0).reshape(3, 4)

    assert one(tensor.t().contiguous().t()) == one(tensor)


@pytest.mark.parametrize("tensor", [torch.tensor(3.0), torch.empty(0), torch.tensor([True, False])])
def test_scalars_nothing_and_booleans_have_digests(tensor: torch.Tensor) -> None:
    assert len(one(tensor)) == len(strong_digest([("w", tensor)])) == 32
