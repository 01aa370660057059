"""The reference service: readings in memory, one thread per request."""

import csv
import json
import threading
from collections import defaultdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

readings: dict[str, list[float]] = defaultdict(list)
lock = threading.Lock()


def load(path: str) -> None:
    with Path(path).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            readings[row["station"]].append(float(row["temperature"]))


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: HTTPStatus, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        with lock:
            match self.path.strip("/").split("/"):
                case ["health"]:
                    self.answer(HTTPStatus.OK, {"status": "ok"})
                case ["stations"]:
                    self.answer(HTTPStatus.OK, sorted(readings))
                case ["stations", name, "mean"] if name in readings:
                    values = readings[name]
                    mean = sum(values) / len(values)
                    self.answer(HTTPStatus.OK, {"station": name, "count": len(values), "mean": mean})
                case _:
                    self.answer(HTTPStatus.NOT_FOUND, {"error": "not found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/readings":
            self.answer(HTTPStatus.NOT_FOUND, {"error": "not found"})
            return
        try:
            reading = json.loads(body)
            _, station, temperature = str(reading["time"]), str(reading["station"]), float(reading["temperature"])
        except (ValueError, KeyError, TypeError):
            self.answer(HTTPStatus.BAD_REQUEST, {"error": "not a reading"})
            return
        with lock:
            readings[station].append(temperature)
        self.answer(HTTPStatus.CREATED, {"status": "added"})


if __name__ == "__main__":
    load("/workspace/readings.csv")
    ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
