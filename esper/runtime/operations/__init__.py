"""Beside a process's work: metrics, health, trimming."""
