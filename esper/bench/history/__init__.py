"""Runs apart: earlier ones of this machine, alarms, two files of results beside each other."""
