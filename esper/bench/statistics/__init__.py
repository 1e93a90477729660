"""What samples come to: quantiles, ratios with their intervals, verdicts, the figures of a comparison."""
