"""Processes kept going: started, restarted, ended."""
