"""What the compose stack must do, on a Docker engine with the images loaded.

The checks run in the order in which they are written, on one stack; all load goes
through its ports on loopback. smoke calls this.

usage: python3 smoke.py DIRECTORY      (made, and removed at the end)
"""

import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.environ.get("DELENDA_CONFORMANCE_CACHE", os.path.join(HERE, "..", "..", "conformance", ".cache"))
PYTHON = os.path.join(VENV, "venv", "bin", "python")
PROJECT = "delenda-smoke"
INGEST, PUBLISHER, STORE = "http://127.0.0.1:8470", "http://127.0.0.1:8472", "http://127.0.0.1:7070"
ERIKA = 4711
REQUESTS = 1000

RECIPIENT = """
import sys, delta_sharing
t = delta_sharing.load_as_pandas(sys.argv[1])
t[["order_id", "customer_id"]].to_csv(sys.argv[2], index=False, header=False)
"""


class Skip(Exception):
    pass


def run(*args, timeout=120, check=True, **more):
    done = subprocess.run(args, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(args[:6])}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done


def wait(what, f, seconds):
    """Waits until f returns something true; f tells of trouble by raising."""
    deadline = time.monotonic() + seconds
    while True:
        trouble = "not yet"
        try:
            got = f()
            if got:
                return got
        except (AssertionError, OSError, http.client.HTTPException) as e:
            trouble = e
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s: {trouble}")
        time.sleep(0.3)


def fetch(url, token=None, body=None, headers=None, timeout=20):
    h = dict(headers or {})
    if token:
        h["Authorization"] = "Bearer " + token
    if body is not None:
        h["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data=body, headers=h)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read()


class Stack:
    def __init__(self, directory, files=("compose.yaml",)):
        self.dir = directory
        os.makedirs(directory)
        self.files = [x for name in files for x in ("-f", os.path.join(directory, name))]
        for name in (*files, "nats.conf", "delenda.example.yaml", "setup"):
            shutil.copy(os.path.join(HERE, name), directory)
        plugin = run("docker", "compose", "version", check=False).returncode == 0
        self.command = ["docker", "compose"] if plugin else ["docker-compose"]
        self.token = self.profile = None
        self.before = {}
        self.erased = {ERIKA}
        self.took = {}

    def compose(self, *args, **more):
        return run(*self.command, *self.files, "-p", PROJECT, *args, cwd=self.dir, **more)

    def ids(self, service):
        return self.compose("--profile", "sample", "ps", "-a", "-q", service).stdout.split()

    def inspect(self, container):
        return json.loads(run("docker", "inspect", container).stdout)[0]

    def containers(self):
        ids = run("docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}").stdout.split()
        return [self.inspect(i) for i in ids]

    def healthy(self, service, count=1):
        states = [self.inspect(i)["State"] for i in self.ids(service)]
        bad = [f"{s['Status']}, {s.get('Health', {}).get('Status')}" for s in states if s.get("Health", {}).get("Status") != "healthy" or s["Status"] != "running"]
        assert not bad and len(states) == count, f"{service}: {len(states)} of {count}, {bad}"
        return True

    def up(self, *args):
        self.compose("--profile", "sample", "up", "-d", *args, timeout=300)

    def read(self):
        """What the recipient sees: customer by order."""
        if not os.access(PYTHON, os.X_OK) or run(PYTHON, "-c", "import delta_sharing", check=False).returncode != 0:
            raise Skip("the Python client is not installed; conformance/run installs it")
        out = os.path.join(self.dir, "rows.csv")
        run(PYTHON, "-c", RECIPIENT, self.profile + "#acme.sales.orders", out, timeout=120)
        with open(out, encoding="utf-8") as f:
            return {int(o): int(c) for o, c in (line.split(",") for line in f)}

    def erase(self, customer, patience=150):
        """Sends a request as a sender would: again and again until it is accepted."""
        body = json.dumps({
            "idempotency_key": f"smoke-{customer}", "regulation": "gdpr", "tables": ["orders"],
            "identities": [{"type": "customer_id", "value": str(customer)}],
        }).encode()
        deadline = time.monotonic() + patience
        while True:
            try:
                return json.loads(fetch(INGEST + "/v1/erasures", self.token, body))["id"]
            except urllib.error.HTTPError as e:
                if e.code < 500 or time.monotonic() > deadline:
                    raise AssertionError(f"request for a customer: {e.code} {e.read().decode()[:300]}") from None
            except (OSError, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.3)

    def load(self, count, events):
        """Sends requests about so many people, eight at a time, and lets the events happen spread over them."""
        people = [c for c in (sorted(set(self.before.values())) or range(1000, 8000)) if c not in self.erased][:count]
        requests, done = [], threading.Semaphore(0)

        def one(customer):
            try:
                requests.append(self.erase(customer))
            finally:
                done.release()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(one, c) for c in people]
            for event in events:
                for _ in range(count // (len(events) + 1)):
                    done.acquire()
                event()
            for job in jobs:
                job.result()
        assert len(set(requests)) == count, f"{len(set(requests))} ids of {count} requests"
        self.erased |= set(people)
        return requests

    def state(self, request):
        return json.loads(fetch(f"{INGEST}/v1/erasures/{request}", self.token))

    def hidden(self, requests, seconds):
        open_ = set(requests)
        deadline = time.monotonic() + seconds
        last = None
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            while open_:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{len(open_)} of {len(requests)} are not hidden, one says {last}")
                for request, answer in zip(list(open_), pool.map(self.quiet_state, list(open_)), strict=True):
                    if answer is None:
                        continue
                    last = answer
                    if answer["state"] == "hidden":
                        open_.discard(request)
                    assert answer["state"] in ("received", "hidden"), answer
                time.sleep(0.5)

    def quiet_state(self, request):
        try:
            return self.state(request)
        except (OSError, http.client.HTTPException):
            return None

    def kill(self, service):
        """kill -9 of the process: the engine takes docker kill for a wish of the operator, and would leave it down."""
        container = self.ids(service)[0]
        os.kill(self.inspect(container)["State"]["Pid"], signal.SIGKILL)
        return container

    def expected(self):
        return {o: c for o, c in self.before.items() if c not in self.erased}

    def seen(self):
        got = self.read()
        want = self.expected()
        assert got == want, f"{len(set(got) - set(want))} rows too many, {len(set(want) - set(got))} too few"
        return True


CHECKS = []


def check(f):
    CHECKS.append(f)
    return f


# Of the stack whose broker is three nodes.
CLUSTER = []


def cluster(f):
    CLUSTER.append(f)
    return f


@cluster
@check
def from_nothing(s):
    """setup and one command bring everything up, ready in order"""
    start = time.monotonic()
    s.token = run("sh", os.path.join(s.dir, "setup"), timeout=60).stdout.strip()
    assert len(s.token) >= 32, "setup printed no token"
    assert run("sh", os.path.join(s.dir, "setup"), check=False).returncode != 0, "a second setup went through"
    s.up()
    for service in ("nats", "store", "ingest", "deleter", "publisher"):
        wait(service, lambda name=service: s.healthy(name), 120)
    sample = s.ids("sample")[0]
    code = run("docker", "wait", sample).stdout.strip()
    assert code == "0", run("docker", "logs", sample).stderr
    s.profile = os.path.join(s.dir, "partner.share")
    run("docker", "cp", f"{sample}:/var/lib/delenda/recipients/partner.share", s.profile)
    s.took["up"] = time.monotonic() - start


@check
def hardened(s):
    """nobody is root, may write to its image or is reached from elsewhere"""
    list_ = s.containers()
    assert len(list_) >= 7, f"{len(list_)} containers"
    for c in list_:
        name, host = c["Name"], c["HostConfig"]
        assert c["Config"]["User"] == "65532:65532", name
        assert host["ReadonlyRootfs"] and host["Memory"] > 0 and host["CapDrop"] == ["ALL"], name
        assert not host["Privileged"] and any("no-new-privileges" in o for o in host["SecurityOpt"]), name
        for ports in (c["NetworkSettings"]["Ports"] or {}).values():
            assert all(p["HostIp"] == "127.0.0.1" for p in ports or []), f"{name}: {ports}"
        assert s.token not in json.dumps(c), name
        if "store" not in name:
            with open(os.path.join(s.dir, "secrets", "s3-credentials"), encoding="utf-8") as f:
                assert f.read().split()[-1] not in json.dumps(c), f"{name} shows a secret"
    inside = json.loads(run("docker", "network", "inspect", f"{PROJECT}_inside").stdout)[0]
    assert inside["Internal"]


@check
def strangers(s):
    """nobody gets in without a token"""
    for url, token in ((INGEST + "/v1/erasures/x", None), (INGEST + "/v1/erasures/x", "wrong"), (PUBLISHER + "/delta-sharing/shares", None)):
        try:
            fetch(url, token)
        except urllib.error.HTTPError as e:
            assert e.code in (401, 404) and (e.code == 401 or url.startswith(PUBLISHER)), f"{url}: {e.code}"
        else:
            raise AssertionError(f"{url} was answered")
    try:
        fetch(STORE + "/lake")
    except urllib.error.HTTPError as e:
        assert e.code == 403, f"the store: {e.code}"
    else:
        raise AssertionError("the store was answered")


@check
def signed(s):
    """a recipient is given S3-signed URLs of the public endpoint, and they work"""
    with open(s.profile, encoding="utf-8") as f:
        profile = json.load(f)
    url = profile["endpoint"].rstrip("/") + "/shares/acme/schemas/sales/tables/orders/query"
    capabilities = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=deletionvectors"}

    def query():
        text = fetch(url, profile["bearerToken"], b"{}", capabilities).decode()
        return re.findall(r'"(http://[^"]+parquet[^"]*)"', text)

    urls = wait("the share", query, 60)
    assert len(urls) == 8, f"{len(urls)} files"
    for u in urls:
        u = u.replace("\\u0026", "&")
        assert u.startswith(STORE + "/lake/orders/") and "X-Amz-Signature=" in u, "a URL is not signed by the store's scheme"
        assert fetch(u, headers={"Range": "bytes=0-3"}) == b"PAR1"
    try:
        fetch(urls[0].replace("\\u0026", "&").partition("?")[0])
    except urllib.error.HTTPError as e:
        assert e.code == 403, e.code
    else:
        raise AssertionError("a file is served without a signature")


@cluster
@check
def followed(s):
    """curl posts an erasure, and the recipient's Python client sees the rows gone"""
    s.before = wait("the recipient", s.read, 60)
    n = sum(c == ERIKA for c in s.before.values())
    assert n == 15044 and len(s.before) == 200000, f"{n} of {len(s.before)}"
    start = time.monotonic()
    body = {"idempotency_key": "erika", "regulation": "gdpr", "tables": ["orders"], "identities": [{"type": "customer_id", "value": str(ERIKA)}]}
    answer = run(
        "curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {s.token}", "-H", "Content-Type: application/json",
        "-d", json.dumps(body), INGEST + "/v1/erasures",
    ).stdout
    request = json.loads(answer)["id"]
    s.hidden([request], 60)
    s.took["one erasure"] = time.monotonic() - start
    wait("the recipient", s.seen, 60)


@check
def killed(s):
    """of 1,000 requests to three deleters, with kill -9 of every service, the broker and the store, all complete"""
    s.up("--scale", "deleter=3")
    wait("three deleters", lambda: s.healthy("deleter", 3), 120)
    dead = {}

    def kill(service):
        dead[service] = s.kill(service)

    start = time.monotonic()
    requests = s.load(REQUESTS, [lambda name=name: kill(name) for name in ("deleter", "publisher", "nats", "ingest", "store")])
    s.took["1,000 requests accepted"] = time.monotonic() - start
    s.hidden(requests, 180)
    s.took["1,000 requests hidden"] = time.monotonic() - start
    for service, container in dead.items():
        assert s.inspect(container)["RestartCount"] >= 1, f"{service} was not started again"
        wait(service, lambda name=service: s.healthy(name, 3 if name == "deleter" else 1), 90)


@check
def rolled(s):
    """of 300 requests, with every service replaced by a new container under them, all complete"""

    def replace(service):
        s.compose("up", "-d", "--no-deps", "--force-recreate", "--scale", "deleter=3", service, timeout=200)

    start = time.monotonic()
    requests = s.load(300, [lambda name=name: replace(name) for name in ("ingest", "deleter", "publisher")])
    s.hidden(requests, 120)
    s.took["300 requests under a rolling restart"] = time.monotonic() - start
    for service in ("ingest", "deleter", "publisher"):
        wait(service, lambda name=service: s.healthy(name, 3 if name == "deleter" else 1), 90)


@cluster
def parted(s):
    """of 600 requests, with one of three brokers killed and another cut off for a while, all complete"""
    network = f"{PROJECT}_inside"
    for node in ("nats-2", "nats-3"):
        wait(node, lambda name=node: s.healthy(name), 60)
    for node in ("nats", "nats-2", "nats-3"):  # each has a copy
        url = "http://127.0.0.1:8222/healthz?account=$G&stream=DELENDA_REQUESTS"
        run("docker", "exec", s.ids(node)[0], "/probe", url)
        absent = run("docker", "exec", s.ids(node)[0], "/probe", url + "-absent", check=False)
        assert absent.returncode != 0, "the broker's health check does not look at streams"
    far = s.ids("nats-3")[0]
    start = time.monotonic()
    requests = s.load(600, [
        lambda: s.kill("nats-2"),
        lambda: (wait("nats-2", lambda: s.healthy("nats-2"), 90), run("docker", "network", "disconnect", network, far)),
        lambda: run("docker", "network", "connect", "--alias", "nats-3", network, far),
        lambda: s.kill("nats"),
    ])
    s.hidden(requests, 180)
    s.took["600 requests with brokers killed and cut off"] = time.monotonic() - start
    for node in ("nats", "nats-2", "nats-3"):
        wait(node, lambda name=node: s.healthy(name), 90)


@cluster
@check
def exact(s):
    """after that the recipient sees every other row, and no row of theirs"""
    if not s.before:
        raise Skip("the Python client is not installed")
    wait("the recipient", s.seen, 60)


@cluster
@check
def operated(s):
    """the operator sees no dead letter and every table served"""
    letters = s.compose("run", "--rm", "operator", "dlq", "list", "-config", "/etc/delenda/delenda.yaml")
    assert "no dead letter" in letters.stdout.lower(), letters.stdout[:500]
    ready = json.loads(fetch("http://127.0.0.1:9470/readyz"))
    assert ready["ready"] and all(t["state"] == "served" for t in ready["tables"]), ready


@check
def measured(s):
    """every service has metrics that say what it did"""
    targets = ["127.0.0.1:9470", "127.0.0.1:9472"] + [run("docker", "port", i, "8471").stdout.split()[0] for i in s.ids("deleter")]
    assert len(targets) == 5, targets
    total = {}
    for t in targets:
        samples = re.findall(r"^(delenda_\w+)(?:\{.*\})? ([0-9.e+]+)$", fetch(f"http://{t}/metrics").decode(), re.M)
        assert any(float(v) > 0 for _, v in samples), f"{t}: nothing"
        for name, value in samples:
            total[name] = total.get(name, 0) + float(value)
    print("  metrics: " + ", ".join(f"{k} {v:g}" for k, v in sorted(total.items()) if k.endswith("_total"))[:600])


@check
def reasons(s):
    """without the broker health says why not, and comes back with it"""
    ingest = s.ids("ingest")[0]
    run("docker", "exec", ingest, "/ingest", "health")
    s.compose("stop", "nats")
    bad = wait("unreadiness", lambda: (lambda d: d if d.returncode == 1 else None)(run("docker", "exec", ingest, "/ingest", "health", check=False)), 30)
    assert "nats" in bad.stderr, bad.stderr
    s.compose("start", "nats")
    wait("readiness", lambda: run("docker", "exec", ingest, "/ingest", "health", check=False).returncode == 0, 60)


@check
def drained(s):
    """all end by themselves when asked to"""
    start = time.monotonic()
    s.compose("stop", "ingest", "deleter", "publisher", timeout=200)
    for service in ("ingest", "deleter", "publisher"):
        for i in s.ids(service):
            code = s.inspect(i)["State"]["ExitCode"]
            assert code == 0, f"{service}: exit {code}"
    s.took["drain"] = time.monotonic() - start


def down(s):
    """the stack goes down without leftovers"""
    s.compose("--profile", "sample", "--profile", "operator", "down", "-v", "--remove-orphans", "-t", "10", timeout=200)
    for kind in (["ps", "-aq"], ["volume", "ls", "-q"], ["network", "ls", "-q"]):
        left = run("docker", *kind, "--filter", f"label=com.docker.compose.project={PROJECT}").stdout.split()
        assert not left, f"{kind[0]}: {left}"


def judge(s, checks, counts):
    """Runs the checks on a stack and takes it down."""
    for f in [*checks, down]:
        start = time.monotonic()
        try:
            f(s)
            verdict = "passed"
        except Skip as e:
            verdict = "skipped"
            print(f"  {e}")
        except Exception:  # noqa: BLE001
            verdict = "failed"
            traceback.print_exc()
            if f is not down:
                print(s.compose("logs", "--tail", "12", "--no-color", check=False).stdout[-8000:])
        counts[verdict] += 1
        print(f"{verdict:8}{time.monotonic() - start:6.1f} s  {f.__doc__}", flush=True)
        if verdict == "failed" and f is from_nothing:
            down(s)
            break
    print("took: " + ", ".join(f"{k} {v:.1f} s" for k, v in s.took.items()))


def main(directory):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    try:
        if os.environ.get("DELENDA_SMOKE", "one") != "cluster":
            judge(Stack(os.path.join(directory, "one")), CHECKS, counts)
        if os.environ.get("DELENDA_SMOKE", "cluster") != "one":
            print("with three brokers:")
            judge(Stack(os.path.join(directory, "cluster"), ("compose.yaml", "compose.cluster.yaml")), CLUSTER, counts)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(", ".join(f"{n} {k}" for k, n in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
