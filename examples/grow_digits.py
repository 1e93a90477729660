"""Grows two seeds in a live training run until they are part of the model, and loses a bad one on the way."""

from __future__ import annotations

import asyncio

from esper.client import Controller, Receipt
from esper.errors import CommandFailedError


async def main() -> None:
    async with Controller.connect() as run:
        await run.epochs(10, timeout_s=600)  # every worker is there, and the host has trained alone
        await done("host optimizer adopted", await run.initialize_host())
        await run.persist(run.rollback, reason="a first look", held_by="no_snapshot")
        print("rolled back to the last snapshot")

        await done("lora germinated", await run.germinate("lora", site="hidden", blueprint="lora", rank=4))
        await done("mlp germinated", await run.germinate("mlp", site="head", blueprint="mlp", hidden=32))
        for seed in ("lora", "mlp"):
            await done(f"{seed} has an optimizer", await run.create_seed_optimizer(seed, lr=3e-3))
            await done(f"{seed} may step without end", await run.grant_steps(seed, grad_clip_norm=1.0))
            await done(f"{seed} trains", await run.start_training(seed))
        await done("lora's moments forgotten", await run.reset_optimizer_state("lora"))

        await done("host learning rate lowered", await run.adjust_optimizer(lr=0.01))
        await done("run paused", await run.pause())
        await done("run goes on", await run.resume())

        for seed in ("lora", "mlp"):
            await grow(run, seed)
        await meet_a_bad_seed(run)
        await run.epochs(5)  # what the run measures of the grown model
        print("done")


async def grow(run: Controller, seed: str) -> None:
    """Each step waits until its gate has the evidence that it asks for."""
    await run.persist(run.start_grafting, seed, steps=60, alpha=1.0, attempts=60)
    print(f"{seed} is blended in")
    await run.persist(run.stabilize, seed, attempts=60)
    await run.persist(run.evaluate, seed, attempts=60)
    await run.epochs(15)  # G4 looks at most three times: let the seed have its say first
    await run.persist(run.fossilize, seed, attempts=3)
    await run.reaches(seed, "FOSSILIZED")
    print(f"{seed} is part of the model")


async def meet_a_bad_seed(run: Controller) -> None:
    """A learning rate of 1000 makes it diverge: the gates cull it, and its slot is embargoed for a while."""
    await done("bad germinated", await run.germinate("bad", site="head", blueprint="mlp", hidden=32))
    await done("bad has an optimizer", await run.create_seed_optimizer("bad", lr=1e3))
    await done("bad trains", await run.start_training("bad"))
    try:
        await run.persist(run.start_grafting, "bad", steps=60, attempts=60)
    except CommandFailedError as error:
        print(f"bad was refused: {error.reason}")
    [state, *_] = await run.reaches("bad", "EMBARGOED")
    print(f"bad is embargoed until epoch {state.embargo_until_epoch}")
    await run.until(lambda workers: all(beat.epoch >= state.embargo_until_epoch for beat in workers.values()))
    await done("bad reset", await run.reset("bad"))
    await run.reaches("bad", "DORMANT")
    print("bad is dormant again")


async def done(what: str, receipt: Receipt) -> None:
    """Wait until every worker has applied it."""
    applied = await receipt.applied()
    print(f"{what} at step {applied[0].step}")


if __name__ == "__main__":
    asyncio.run(main())
