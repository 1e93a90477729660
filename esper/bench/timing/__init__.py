"""How samples are taken: arms set up and agreeing, the clock, warm-up, rounds in a drawn order."""
