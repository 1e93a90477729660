"""The wire (Leyline): contracts, envelope, keys, replay. Pure, no I/O."""
