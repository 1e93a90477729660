"""A rank that trains and nothing else: what takes a core away from those who agree."""

from __future__ import annotations

import torch

from esper.bench.rounds.lines import say

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(64, 256), torch.randint(0, 10, (64,))
say("ready")
while True:
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
