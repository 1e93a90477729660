"""Base units, as Prometheus asks for them: seconds, bytes and ratios, told from the end of a metric's name."""

from __future__ import annotations

_BASES = {
    "_ns": ("_seconds", 1e-9),
    "_us": ("_seconds", 1e-6),
    "_ms": ("_seconds", 1e-3),
    "_s": ("_seconds", 1.0),
    "_kb": ("_bytes", 1e3),
    "_mb": ("_bytes", 1e6),
    "_gb": ("_bytes", 1e9),
    "_percent": ("_ratio", 1e-2),
}


def in_base_unit(name: str) -> tuple[str, float]:
    """A name that ends in its base unit, and the factor that leads there: step_ms is step_seconds, times 0.001."""
    for ending, (base, factor) in _BASES.items():
        if name.endswith(ending):
            return name.removesuffix(ending) + base, factor
    return name, 1.0


def split_labels(name: str) -> tuple[str, dict[str, str]]:
    """A metric's own name and its labels, out of `name{label=value,...}` as the aggregators write it."""
    own, brace, rest = name.partition("{")
    if not brace or not rest.endswith("}"):
        return name, {}
    pairs = (pair.partition("=") for pair in rest[:-1].split(","))
    return own, {label: value for label, _, value in pairs}
