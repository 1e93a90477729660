"""The work that rows of the suite time: loaded when an arm is set up, as it needs torch."""
