"""What ESPER_REDIS_ variables add to a URL: a user with a password, and the files of TLS. What the URL says wins."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode

from esper.errors import SettingError

PARTS = re.compile(r"(?P<scheme>[a-z+]+://)(?:(?P<user>[^/?]*)@)?(?P<place>[^?]*)(?:\?(?P<query>.*))?")
URL, USERNAME, PASSWORD = "ESPER_REDIS_URL", "ESPER_REDIS_USERNAME", "ESPER_REDIS_PASSWORD"
PASSWORD_FILE = "ESPER_REDIS_PASSWORD_FILE"
"""Where both are written, to be read anew at each connection: they may be replaced while a process runs."""
FILES = {"ssl_ca_certs": "ESPER_REDIS_CA", "ssl_certfile": "ESPER_REDIS_CERT", "ssl_keyfile": "ESPER_REDIS_KEY"}
"""Option of a URL: the variable that stands for it. All are PEM files; the key has no passphrase."""
OF_A_FILE = "password_file"
NAMING = ("username", "password", OF_A_FILE)
"""Options that say who connects, as what stands before an @ does, which goes before them."""


def without_password(url: str) -> str:
    """The URL as it may be shown: nothing that stands before an @, where a password may hold any sign, nor options."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    place = rest if rest.startswith("/") else rest.rpartition("@")[2]
    return f"{scheme}{mark}{place.partition('?')[0]}"


def completed(url: str, environment: Mapping[str, str]) -> str:
    """The URL with all that it needs to connect. SettingError: a variable, or a file that is named, does not fit."""
    found = PARTS.fullmatch(url)
    if found is None:
        return url  # whoever connects says what is wrong with it
    options, user = dict(parse_qsl(found["query"] or "", keep_blank_values=True)), found["user"]
    if user is None and "password" not in options and OF_A_FILE not in options:
        file = environment.get(PASSWORD_FILE, "")
        if file and (os.access(file, os.R_OK) or not environment.get(PASSWORD)):
            options = {OF_A_FILE: file} | options
        else:
            user = user_of(environment)
    told = {option: environment[name] for option, name in FILES.items() if environment.get(name)}
    if told and not found["scheme"].startswith("rediss"):
        name = FILES[next(iter(told))]
        raise SettingError(URL, without_password(url), f"a URL that begins with rediss://, as {name} is set")
    options = told | options
    check_files(options)
    query = f"?{urlencode(options, safe='/')}" if options else ""
    return f"{found['scheme']}{'' if user is None else f'{user}@'}{found['place']}{query}"


def user_told(url: str) -> str:
    """Who connects by this URL, in words that may be shown."""
    found = PARTS.fullmatch(url)
    options = dict(parse_qsl(found["query"] or "", keep_blank_values=True)) if found else {}
    given = unquote((found["user"] or "").partition(":")[0]) if found else ""
    if name := given or options.get("username", ""):
        return f"user {name!r}"
    return f"the user of {options[OF_A_FILE]}" if OF_A_FILE in options else "the default user"


def nameless(url: str) -> str:
    """The same without a user: as somebody reaches the server who gives no name."""
    found = PARTS.fullmatch(url)
    if found is None:
        return url
    query = parse_qsl(found["query"] or "", keep_blank_values=True)
    options = urlencode([(name, value) for name, value in query if name not in NAMING], safe="/")
    return f"{found['scheme']}{found['place']}{'?' if options else ''}{options}"


def user_of(environment: Mapping[str, str]) -> str | None:
    """As it stands in a URL; None: nobody is named, and the server's default user is meant."""
    name, password = environment.get(USERNAME, ""), environment.get(PASSWORD, "")
    if name and not password:
        raise SettingError(PASSWORD, password, f"the password of {name}, whom {USERNAME} names")
    return f"{quote(name, safe='')}:{quote(password, safe='')}" if password else None


def check_files(options: Mapping[str, str]) -> None:
    """Refuse what can't be read or does not fit, before a connection says so in other words, again and again."""
    for option, name in FILES.items():
        if option in options and not readable(Path(options[option])):
            raise SettingError(name, options[option], "a PEM file that can be read")
    if ("ssl_certfile" in options) != ("ssl_keyfile" in options):
        missing = "ssl_keyfile" if "ssl_certfile" in options else "ssl_certfile"
        raise SettingError(FILES[missing], "", "a PEM file: a client's certificate and its key go together")
    if "ssl_ca_certs" in options:
        check_authority(options["ssl_ca_certs"])
    if "ssl_certfile" in options:
        check_pair(options["ssl_certfile"], options["ssl_keyfile"], options.get("ssl_password", ""))


def check_authority(path: str) -> None:
    """Refuse a file without a certificate."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingError(FILES["ssl_ca_certs"], path, f"a PEM file of certificates ({error.reason})") from error


def check_pair(cert: str, key: str, password: str) -> None:
    """Refuse a key of another certificate, or one under a passphrase that is not told: nobody is there to ask."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password)
    except ssl.SSLError as error:
        expected = f"the key of {cert}, without a passphrase ({error.reason})"
        raise SettingError(FILES["ssl_keyfile"], key, expected) from error


def readable(path: Path) -> bool:
    """Whether it is PEM."""
    try:
        return "-----BEGIN " in path.read_text()
    except (OSError, UnicodeDecodeError):
        return False
