"""The commands of `esper bench`."""
