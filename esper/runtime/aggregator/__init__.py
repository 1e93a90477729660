"""The process of a tier: windows closed, settled."""
