"""How bytes travel: streams, groups, reclaim, dead letters. The only importer of redis."""
