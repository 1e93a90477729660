"""Real processes with one part each: they publish, work or watch, and write down what they did."""
