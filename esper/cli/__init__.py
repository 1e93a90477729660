"""The `esper` command."""
