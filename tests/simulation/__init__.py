"""The bus's protocols under virtual time: a model of Redis, actors that crash, and what must hold all the same."""
