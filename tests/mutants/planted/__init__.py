"""The bugs that are planted, by what they break."""
