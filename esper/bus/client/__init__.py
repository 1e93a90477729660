"""Clients of one server, a Cluster, Sentinels."""
