"""Checkpoints on disk: tensors as safetensors, everything else in a manifest that is signed."""
