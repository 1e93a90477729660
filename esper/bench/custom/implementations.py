"""Causal self-attention as PyTorch users write it: the baselines that an implementation of one's own stands beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from esper.bench.agreement import Answer
from esper.bench.arm import Ready
from esper.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor, nn

TYPES = ("inference", "training")
ASKED = 2_048
"""Elements that an output answers with, evenly spread, beside its sum."""
SEED = 0


class Implementation(Protocol):
    """Anything that does the work of a configuration. Those of one benchmark must come to the same."""

    @property
    def name(self) -> str: ...

    def missing(self) -> str:
        """Why it can't be measured here; empty where it can."""
        ...

    def set_up(self, benchmark_type: str, config: Mapping[str, int]) -> Ready:
        """One call is one forward ("inference"), or one step of training with its backward and optimizer."""
        ...


class Attention:
    """One layer over (batch_size, sequence_length, d_model) in float32, with equal weights and inputs in each of them.

    `name` and `attend`, from queries, keys and values (batch, heads, length, width) to as much again, make a baseline.
    """

    def __init__(self, device: Any = "cpu", name: str = "", attend: Callable[..., Tensor] | None = None) -> None:
        self._device = str(device)
        self.name = name or "PyTorch Native"
        self._attend = attend or native

    def missing(self) -> str:
        import torch

        if self._device.startswith("cuda") and not torch.cuda.is_available():
            return f"torch sees no CUDA device, {self._device} was asked for"
        return ""

    def set_up(self, benchmark_type: str, config: Mapping[str, int]) -> Ready:
        import torch

        shape = tuple(_positive(config, name) for name in ("batch_size", "sequence_length", "d_model"))
        heads = _positive(config, "num_heads")
        if shape[2] % heads:
            raise SettingError("d_model", shape[2], f"a multiple of num_heads, {heads}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            inputs = torch.randn(shape).to(self._device)
            into, out = (torch.nn.Linear(shape[2], num * shape[2], bias=False).to(self._device) for num in (3, 1))
        forward = _layer(into, out, heads, self._attend)
        if benchmark_type == "inference":
            return _inference(forward, inputs, self._device)
        if benchmark_type == "training":
            return _training(forward, inputs, [*into.parameters(), *out.parameters()], self._device)
        raise SettingError("the type of the benchmark", benchmark_type, f"one of {', '.join(TYPES)}")


class PyTorchNativeBaseline(Attention):
    """Scores, mask, softmax and product, an operation each."""

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(device, "PyTorch Native", native)


class PyTorchOptimizedBaseline(Attention):
    """torch's scaled_dot_product_attention, which picks a kernel of its own."""

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(device, "PyTorch Optimized", fused)


class FlashAttentionBaseline(Attention):
    """The same, held to its flash kernel: an error where the device has none for these shapes, never another kernel."""

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(device, "Flash Attention", flash)


def native(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    import torch

    length, width = queries.shape[-2:]
    scores = queries @ keys.transpose(-2, -1) / width**0.5
    later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1) @ values


def fused(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def flash(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return fused(queries, keys, values)


def _layer(into: nn.Module, out: nn.Module, heads: int, attend: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    def forward(inputs: Tensor) -> Tensor:
        parts = into(inputs).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        joined: Tensor = out(attend(*parts.unbind(0)).transpose(1, 2).flatten(2))
        return joined

    return forward


def _inference(forward: Callable[[Tensor], Tensor], inputs: Tensor, device: str) -> Ready:
    import torch

    @torch.no_grad()
    def call() -> Tensor:
        return forward(inputs)

    return Ready(call, lambda: asked(call()), device=device)


def _training(forward: Callable[[Tensor], Tensor], inputs: Tensor, parameters: list[Tensor], device: str) -> Ready:
    """Plain gradient descent on the mean square of the output, so that each step has the next one's work to do."""
    import torch

    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def call() -> None:
        forward(inputs).square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    def answer() -> Answer:
        with torch.no_grad():
            return asked(forward(inputs))

    return Ready(call, answer, device=device)


def asked(output: Tensor) -> Answer:
    """Its shape, its sum, and elements evenly spread over it."""
    flat = output.double().flatten()
    spread: list[float] = flat[:: max(1, len(flat) // ASKED)].tolist()
    return [list(output.shape), float(flat.sum()), spread]


def _positive(config: Mapping[str, int], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise SettingError(f"{name} of the benchmark's config", value, "an integer above 0")
    return value
