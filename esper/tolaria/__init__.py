"""The trainer's side (Tolaria): step boundary, optimizers, snapshots, digests."""
