"""Builds of what lies here: setuptools would pack what an earlier build has left, modules deleted since included."""

import shutil

from setuptools import setup

shutil.rmtree("build/lib", ignore_errors=True)
setup()
