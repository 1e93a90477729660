"""The controller's judge (Tamiyo): barrier rounds and command verdicts."""
