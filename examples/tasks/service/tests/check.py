"""Asks the running service. Exit status: 0 every answer is right, 10 one is wrong, missing or too slow; anything else: this failed.

Readings are added under names and with values that are drawn here, so no answer can be prepared.
"""

import http.client
import json
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable

COUNTS = {"anholt": 10, "skagen": 11, "thyboron": 12}
MEANS = {"anholt": 2.39, "skagen": 2.527273, "thyboron": 5.675}
MAX_BODY_BYTES = 64 * 1024
WRONG = 10
ALLOWANCE_S = 30


class Wrong(Exception):
    """An answer is not what it must be."""


class TooSlow(BaseException):
    """The allowance for all questions together is used up; no check catches it."""


def ask(method: str, path: str, body: object = None, *, raw: bytes | None = None) -> tuple[int, object]:
    """Status and decoded body. Raises Wrong for no answer or one that isn't JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=5)
    try:
        sent = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        connection.request(method, path, body=sent, headers={"Content-Type": "application/json"} if sent else {})
        response = connection.getresponse()
        if response.headers.get_content_type() != "application/json":
            raise Wrong(f"{method} {path}: content type {response.headers.get('Content-Type')}")
        return response.status, json.loads(response.read(MAX_BODY_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Wrong(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


def check_mean(station: str, count: int, mean: float) -> None:
    status, content = ask("GET", f"/stations/{station}/mean")
    expect(status == 200 and isinstance(content, dict), f"mean of {station}: status {status}, {content}")
    assert isinstance(content, dict)
    expect(set(content) == {"station", "count", "mean"}, f"mean of {station}: {content}")
    expect(
        content["station"] == station and content["count"] == count,
        f"mean of {station}: {content}, not {count} readings",
    )
    found = content["mean"]
    expect(isinstance(found, (int, float)) and abs(found - mean) <= 0.001, f"mean of {station}: {found}, not {mean}")


def health() -> None:
    expect(ask("GET", "/health") == (200, {"status": "ok"}), "GET /health")


def stations() -> None:
    expect(ask("GET", "/stations") == (200, sorted(COUNTS)), "GET /stations")


def means() -> None:
    for station, count in COUNTS.items():
        check_mean(station, count, MEANS[station])


def errors() -> None:
    for method, path, raw, wanted in (
        ("GET", f"/stations/{secrets.token_hex(4)}/mean", None, 404),
        ("GET", f"/{secrets.token_hex(4)}", None, 404),
        ("POST", "/readings", b"no json", 400),
        ("POST", "/readings", b'{"station": "skagen"}', 400),
    ):
        status, content = ask(method, path, raw=raw)
        expect(
            status == wanted and isinstance(content, dict) and "error" in content,
            f"{method} {path}: {status}, {content}",
        )


def additions() -> None:
    added = [round(random.uniform(-20, 20), 2) for _ in range(random.randint(3, 6))]
    station = f"new-{secrets.token_hex(4)}"
    for where, before, count in ((station, 0.0, 0), ("skagen", MEANS["skagen"], COUNTS["skagen"])):
        for value in added:
            reading = {"time": "2024-04-01T08:00:00Z", "station": where, "temperature": value}
            expect(ask("POST", "/readings", reading) == (201, {"status": "added"}), f"POST /readings {reading}")
        check_mean(where, count + len(added), (before * count + sum(added)) / (count + len(added)))
    expect(ask("GET", "/stations") == (200, sorted([*COUNTS, station])), "GET /stations after additions")


def passes(check: Callable[[], None]) -> bool:
    try:
        check()
    except Wrong as error:
        print(f"FAIL {check.__name__}: {error}")
        return False
    print(f"ok   {check.__name__}")
    return True


def wait_until_listening(seconds: float) -> None:
    """A service that has only just been started gets a moment."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            ask("GET", "/health")
            return
        except Wrong:
            time.sleep(0.1)


def out_of_time(*_: object) -> None:
    raise TooSlow


def main() -> int:
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(ALLOWANCE_S)
    try:
        wait_until_listening(1.0)
        results = [passes(check) for check in (health, stations, means, errors, additions)]
    except TooSlow:
        print(f"FAIL the answers took more than {ALLOWANCE_S} s")
        return WRONG
    return 0 if all(results) else WRONG


if __name__ == "__main__":
    sys.exit(main())
