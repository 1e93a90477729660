"""The executor (Kasmina): seeds, lifecycle gates, isolation, blending."""
