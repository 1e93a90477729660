"""Bytes with one bit changed, always."""

from __future__ import annotations


def altered(data: bytes) -> bytes:
    """`data` whose last byte has another lowest bit; a fixed byte put there would be its own once in 256."""
    return data[:-1] + bytes([data[-1] ^ 1])
