"""What streams hold; trimming, tidying, dead letters."""
