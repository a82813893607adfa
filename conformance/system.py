"""A running `delenda up` on a directory of its own, on loopback."""

import hashlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

TOKEN = secrets.token_urlsafe(24)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class System:
    """Tables are given as name -> (directory, identities)."""

    def __init__(self, work, tables):
        self.work = work
        self.tables = tables
        self.binary = os.environ["DELENDA_BIN"]
        self.config = os.path.join(work, "delenda.yaml")
        self.profile = os.path.join(work, "reader.share")
        self.log = os.path.join(work, "delenda.log")
        self.ports = {name: free_port() for name in ("ingest", "deleter", "publisher")}
        self.process = None

    def write_config(self):
        # JSON is YAML, and leaves no quoting to get wrong.
        shared = [{"name": name} for name in self.tables]
        config = {
            "installation": "conformance",
            "state": os.path.join(self.work, "state"),
            "keeper": os.path.join(self.work, "keeper.key"),
            "nats": {"embedded": {"dir": os.path.join(self.work, "nats")}},
            "tables": [
                {"name": name, "url": path, "identities": identities}
                for name, (path, identities) in self.tables.items()
            ],
            "limits": {"rows": 1000, "share": 0.5},
            "batch": {"window": "100ms"},
            "ingest": {
                "listen": self.address("ingest"),
                "sources": [{"name": "shop", "tokens_sha256": [hashlib.sha256(TOKEN.encode()).hexdigest()]}],
            },
            "deleter": {"listen": self.address("deleter")},
            "publisher": {
                "listen": self.address("publisher"),
                "poll": "1s",
                "shares": [{"name": "main", "schemas": [{"name": "lake", "tables": shared}]}],
            },
        }
        with open(self.config, "w", encoding="utf-8") as f:
            json.dump(config, f, indent=1)

    def address(self, service):
        return f"127.0.0.1:{self.ports[service]}"

    def start(self):
        self.write_config()
        out = open(self.log, "ab")
        self.process = subprocess.Popen(
            [self.binary, "up", "-config", self.config], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        out.close()
        for service in self.ports:
            self.wait_ready(service)
        self.command("share", "reader", "--out", self.profile)
        self.wait_granted()

    def wait_ready(self, service):
        deadline = time.monotonic() + 60
        last = "no answer"
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"delenda up ended with {self.process.returncode}:\n{self.log_tail()}")
            try:
                with urllib.request.urlopen(f"http://{self.address(service)}/readyz", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError) as e:
                last = e.read().decode() if isinstance(e, urllib.error.HTTPError) else str(e)
            time.sleep(0.1)
        raise RuntimeError(f"{service} is not ready: {last}\n{self.log_tail()}")

    def wait_granted(self):
        """Replicas learn of a new recipient within seconds."""
        with open(self.profile, encoding="utf-8") as f:
            profile = json.load(f)
        request = urllib.request.Request(
            profile["endpoint"].rstrip("/") + "/shares", headers={"Authorization": "Bearer " + profile["bearerToken"]}
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return
            except urllib.error.HTTPError as e:
                if e.code != 401 or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def log_tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return "".join(f.readlines()[-15:])

    def command(self, verb, *args, timeout=120):
        """Runs a command of the binary and returns what it printed."""
        done = subprocess.run(
            [self.binary, verb, "-config", self.config, *args],
            capture_output=True, text=True, timeout=timeout, env={**os.environ, "DELENDA_TOKEN": TOKEN}, check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"delenda {verb}: exit {done.returncode}: {done.stderr.strip()}\n{self.log_tail()}")
        return done.stdout

    def erase(self, identity, value, *tables):
        """Erases and waits until the rows are hidden; returns what was printed."""
        args = ["--identity", f"{identity}={value}", "--wait", "60s"]
        for table in tables:
            args += ["--table", table]
        return self.command("erase", *args)

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise AssertionError("delenda up did not end within 30 s of SIGTERM") from None
        if self.process.returncode != 0:
            raise AssertionError(f"delenda up ended with {self.process.returncode}:\n{self.log_tail()}")
