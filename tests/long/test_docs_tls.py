"""The certificates that a page shows how to make are ones that a server and its clients take."""

from __future__ import annotations

import subprocess
from pathlib import Path

from esper.bus import connect
from esper.bus.client.credentials import completed
from esper.bus.embedded import EmbeddedRedis
from tests.many_servers import HOST, free_ports
from tests.pages import typed_by
from tests.server_kit import newer_server


async def test_a_server_and_a_process_take_the_certificates_of_the_page(short_directory: Path) -> None:
    binary, [port] = newer_server(), free_ports(1)
    folder = short_directory / "pki"
    folder.mkdir()
    [block] = typed_by("tests/long/test_docs_tls.py")
    typed = f"set -e\n{block.text}env"
    said = subprocess.run(["bash", "-c", typed], cwd=folder, capture_output=True, text=True, check=True).stdout
    variables = dict(line.partition("=")[::2] for line in said.splitlines() if line.startswith("ESPER_REDIS_"))
    files = {"ca-cert-file": "ca.pem", "cert-file": "server.crt", "key-file": "server.key"}
    told = {f"tls-{name}": str(folder / file) for name, file in files.items()}
    options = {**told, "bind": HOST, "port": "0", "tls-port": str(port), "tls-auth-clients": "yes"}

    with EmbeddedRedis(folder / "data", binary=binary, options=options):
        redis = connect.writer(completed(f"rediss://localhost:{port}/0", variables))
        try:
            assert await redis.ping() is True
        finally:
            await redis.aclose()
