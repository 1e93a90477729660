"""A digest of parameters tells any two states apart that differ in one element or in an exchange of two."""

from __future__ import annotations

import hashlib

import numpy
import pytest
import torch
from hypothesis import given, strategies as st

from esper.tolaria.state.digest import CHUNK_CPU, ROW, parameter_digest, strong_digest
from tests.asked_of_torch import Operations

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


@given(values=st.lists(st.floats(-60000, 60000, width=16), min_size=2, max_size=40, unique=True), pick=st.data())
def test_two_elements_exchanged_change_the_digest(values: list[float], pick: st.DataObject) -> None:
    first, second = pick.draw(st.lists(st.integers(0, len(values) - 1), min_size=2, max_size=2, unique=True))
    for dtype in FLOATS:
        tensor = torch.tensor(values, dtype=torch.float64).to(dtype)
        exchanged = tensor.clone()
        exchanged[[first, second]] = tensor[[second, first]]

        assert (one(exchanged) == one(tensor)) == bool(tensor[first] == tensor[second]), dtype


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

    assert parameter_digest([("b", small), ("a", large)]) == found_by_numpy({"a": large, "b": small})


def test_many_small_tensors_of_several_kinds_have_the_digest_that_numpy_finds() -> None:
    sizes = [2 * ROW, 5, 2 * ROW + 5, 4 * ROW, 0, 16 * ROW, 6 * ROW + 1]
    kinds = [torch.float32, torch.float32, torch.float16, torch.int32, torch.bfloat16, torch.bool, torch.float64]
    named = {f"{at:03}": (torch.randn(sizes[at % 7]) * 9).to(kinds[at // 3 % 7]) for at in range(80)}
    named["003"][1], named["001"][4] = -0.0, -0.0

    assert parameter_digest(named.items()) == found_by_numpy(named)


def test_a_small_tensor_costs_few_operations() -> None:
    num = {}
    for many in (10, 110):
        with Operations() as counting:
            parameter_digest([(f"{at}.{kind}", torch.ones(2 * ROW)) for at in range(many // 2) for kind in "ab"])
        num[many] = len(counting.calls)

    assert (num[110] - num[10]) / 100 <= 5  # one of them made it


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


def test_the_lowest_integer_beside_halves_of_two_types_is_not_taken_for_a_negative_zero() -> None:
    lowest = torch.zeros(4 * ROW, dtype=torch.int16)
    lowest[7] = -(1 << 15)
    halves = [("g", torch.ones(5, dtype=torch.float16)), ("h", torch.ones(5, dtype=torch.bfloat16))]

    assert parameter_digest([("w", lowest), *halves]) != parameter_digest([("w", torch.zeros_like(lowest)), *halves])


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no such type")
def test_a_type_of_four_bits_has_a_digest_by_each_byte() -> None:
    digests = {one(torch.arange(first, first + 40, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)) for first in (0, 1)}

    assert len(digests) == 2


@pytest.mark.parametrize("tensor", [torch.tensor(3.0), torch.empty(0), torch.tensor([True, False])])
def test_scalars_nothing_and_booleans_have_digests(tensor: torch.Tensor) -> None:
    assert len(one(tensor)) == len(strong_digest([("w", tensor)])) == 32


def found_by_numpy(named: dict[str, torch.Tensor]) -> bytes:
    """Of named tensors in order, over all their bytes at once."""
    heads = [f"{name}\0{tuple(tensor.shape)}\0{tensor.dtype}\n".encode() for name, tensor in named.items()]
    whole, rests = b"", dict[tuple[int, bool], bytes]()
    for tensor in named.values():
        kind = tensor.element_size(), tensor.is_floating_point()
        counted = tensor.masked_fill(tensor == 0, 0) if tensor.is_floating_point() else tensor
        held = counted.view(torch.uint8).numpy().tobytes()
        size = len(held) // (8 * ROW) * 8 * ROW
        whole, rests[kind] = whole + held[:size], rests.get(kind, b"") + held[size:]
    laid = whole + b"".join(rest + bytes(-len(rest) % (8 * ROW)) for _, rest in sorted(rests.items()))
    rows = numpy.frombuffer(laid, numpy.int64).reshape(-1, ROW)
    folded = rows.sum(0).reshape(64, -1)
    sums = numpy.concatenate([folded.sum(0), folded.sum(1), rows.sum(1)])
    return hashlib.sha256(b"".join(heads) + sums.tobytes()).digest()
