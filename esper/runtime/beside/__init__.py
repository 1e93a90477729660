"""The runtime beside a trainer, and their link."""
