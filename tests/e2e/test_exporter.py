# SPDX-License-Identifier: Apache-2.0
"""mmctl exporter: what is scraped, by whom, at what cost; and what is made of it: alerts and a dashboard."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse

import pytest

import wire
from daemon import alive
from programs import BIN, TOP, limit, wait_until
from tenant import make_requests

MONITORING = TOP / "Documentation" / "examples" / "monitoring"
OPEN = "application/openmetrics-text"
SAMPLE = re.compile(r'^([a-z_:]+)(?:\{(.*)\})? (-?[0-9.]+(?:e[-+]?[0-9]+)?)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')
UNESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


def parse(text):
    """{family: {(labels): value}} of either format; whatever a strict reader refuses fails here."""
    families, family, samples = {}, None, {}
    lines = text.splitlines()
    assert text.endswith("\n")
    for line in lines:
        if line.startswith("# EOF"):
            assert line is lines[-1]
        elif line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in families, f"{family} twice"
            families[family] = "untyped"
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            families[family] = line.split()[3]
        elif line.startswith("# UNIT "):
            assert family.endswith("_" + line.split()[3]), line
        else:
            name, labels, value = SAMPLE.match(line).groups()
            assert name.startswith(family), f"{name} within {family}"
            found = LABEL.findall(labels or "")
            assert ",".join(f'{k}="{v}"' for k, v in found) == (labels or ""), line
            key = (name, tuple((k, re.sub(r"\\(.)", lambda m: UNESCAPED[m[1]], v)) for k, v in found))
            assert key not in samples, line
            samples[key] = float(value)
    return families, samples


class Exporter:
    def __init__(self, d, listen="127.0.0.1:0"):
        self.process = subprocess.Popen(
            [str(BIN / "mmctl"), "--dir", str(d.dir), "--json", "exporter", "--listen", listen],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        text = ""
        while not text.rstrip().endswith("}"):
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            text += line
        self.url = json.loads(text)["listens"]
        self.path = listen[5:] if listen.startswith("unix:") else None

    def connect(self):
        if self.path:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(limit(20))
            s.connect(self.path)
            return s
        at = urllib.parse.urlsplit(self.url)
        return socket.create_connection((at.hostname, at.port), timeout=limit(20))

    def get(self, url="/metrics", method="GET", headers=(), body=None):
        connection = http.client.HTTPConnection("mmd")
        connection.sock = self.connect()
        with contextlib.closing(connection):
            connection.request(method, url, body=body, headers=dict(headers))
            reply = connection.getresponse()
            return reply, reply.read().decode()

    def scrape(self, accept=OPEN):
        reply, text = self.get(headers={"Accept": accept})
        assert reply.status == 200
        return parse(text)[1]

    def value(self, name, **labels):
        found = [value for (n, of), value in self.scrape().items()
                 if n == name and labels.items() <= dict(of).items()]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def switches(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return [int(line.split()[1]) for line in status if "ctxt_switches" in line]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        errors = self.process.communicate(timeout=limit(20))[1]
        return self.process.returncode, errors


@pytest.fixture
def export():
    """export(daemon, listen) -> Exporter; ended when the test is over."""
    made = []

    def maker(*args):
        made.append(Exporter(*args))
        return made[-1]
    yield maker
    for one in made:
        if one.process.poll() is None:
            code, errors = one.end()
            assert code == 0, errors


def tool(name):
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed (Debian: prometheus)")
    return found


@pytest.fixture
def ready(root, start, serve, model_dirs):
    """ready(spread_s) -> an mmd, and two tenants that will want more KV memory than there is, for so long."""
    def maker(spread_s):
        d = start(policy="remap", pool="4800K", page="16K")
        tenants = []
        for i in range(2):
            requests = make_requests(root / f"{i}.jsonl", 40, prompt=(16, 64), output=(40, 80), seed=i,
                                     spread_s=spread_s)
            tenants.append(serve(f"t{i}", model_dirs[i], requests, d,
                                 extra=["--kv-share", "512K", "--kv-idle", "20"], sync=True).ready())
        return d, tenants
    return maker


@pytest.fixture
def busy(ready):
    d, tenants = ready(0)
    for tenant in tenants:
        tenant.go()
    return d, tenants


# ---- what is there ----

def test_both_formats_say_the_same(busy, export):
    d, tenants = busy
    e = export(d)
    for tenant in tenants:
        tenant.wait(120)
    accepts = [(None, False), ("text/plain", False), ("*/*", False), (OPEN, True), (OPEN + ";q=0", False),
               (OPEN + ";version=1.0.0,text/plain;q=0.5", True), (OPEN + ";q=0.2, text/plain;q=0.5", False),
               ("application/openmetrics-text2", False), (";;,,q=", False), ("x" * 4000, False)]
    texts = {}
    for accept, is_open in accepts:
        reply, text = e.get(headers={"Accept": accept} if accept else {})
        assert reply.status == 200 and reply.headers["Content-Type"].startswith(OPEN) == is_open, accept
        assert text.endswith("# EOF\n") == is_open
        texts[is_open] = text
    (types, plain), (open_types, opened) = parse(texts[False]), parse(texts[True])
    assert plain.keys() == opened.keys()
    changes = {"mmd_exporter_scrapes_total", "mmd_exporter_answer_seconds", "mmd_exporter_cpu_seconds_total",
               "mmd_core_cpu_seconds_total", "mmd_host_memory_available_bytes"}
    assert {k: v for k, v in plain.items() if k[0] not in changes} == \
        {k: v for k, v in opened.items() if k[0] not in changes}
    counters = {name for name, kind in types.items() if kind == "counter"}
    assert counters and all(name.endswith("_total") and name[:-6] in open_types for name in counters)
    status = d.status()
    assert opened["mmd_up", ()] == 1
    of = (("device", "0"),)
    assert sum(v for k, v in opened.items() if k[0] == "mmd_pool_bytes") == 4800 << 10
    assert opened["mmd_device_streamed_bytes_total", of] == status["bytes_streamed"]
    assert opened["mmd_device_denials_total", of] == status["denials"]
    sums = {name: sum(v for k, v in opened.items() if k[0] == f"mmd_account_{name}")
            for name in ("grants_total", "layers_taken_total", "layers_returned_total", "joins_total",
                         "grant_wait_seconds_count", "claimed_steps_total")}
    assert sums["grants_total"] == sums["grant_wait_seconds_count"] == status["grants"] > 0
    assert sums["layers_taken_total"] == status["takes"] and sums["layers_returned_total"] == status["returns"]
    assert sums["joins_total"] == 2 and sums["claimed_steps_total"] > 0


def test_promtool_has_nothing_to_say(busy, export):
    promtool = tool("promtool")
    d, _ = busy
    text = export(d).get()[1]
    done = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_list_is_the_document():
    done = subprocess.run([str(BIN / "mmctl"), "--json", "exporter", "--list"], capture_output=True, check=True)
    rows = ["| name | type | labels | says |", "|---|---|---|---|"]
    for m in json.loads(done.stdout)["metrics"]:
        says = m["help"] + (", as the tenant claims" if m["claim"] else "")
        rows.append(f"| `{m['name']}` | {m['type']} | {m['labels']} | {says} |")
    page = (TOP / "Documentation" / "metrics.md").read_text()
    begin = page.index(rows[0])
    assert page[begin:].split("\n\n")[0].strip() == "\n".join(rows)


# ---- what tenants choose ----

def test_names_are_escaped_and_bounded(start, export):
    """Tenants with any name, each time another one: few series, and none that breaks the text."""
    d = start(policy="elastic", pool="2M", page="16K")
    e = export(d)
    names = [b"a}", b"{x=1,}", b"#EOF", b"mmd_up{}", b"plain"] + [b"n%d" % i for i in range(40)]
    seen = set()
    for name in names:
        tenant = wire.Raw(d)
        tenant.greet(wire.hello(name=name))
        seen |= {dict(of)["tenant"] for n, of in e.scrape() if n == "mmd_tenant_connected"}
        tenant.close()
        wait_until(lambda: not d.status()["tenants"], 10, "the tenant to be gone")
    assert {name.decode() for name in names[:5]} <= seen
    assert "other" in seen and len(seen) == 33
    assert e.value("mmd_device_joins_total") == len(names)
    assert not any(name.startswith(("mmd_tenant", "mmd_account")) for name, _ in e.scrape())


# ---- who may ask, and what does not hurt ----

@pytest.mark.parametrize("listen, says", [
    ("0.0.0.0:9", "other hosts"), ("[::]:9", "other hosts"), (":9", "other hosts"), ("192.0.2.1:9", "other hosts"),
    ("localhost", "is not unix:PATH"), ("127.0.0.1", "is not"), ("127.0.0.1:65536", "is not"),
    ("127.0.0.1:", "is not"), ("127.0.0.1:9x", "is not"), ("[::1:9", "is not"), ("unix:", "path of a socket"),
    ("unix:" + "x" * 200, "path of a socket")])
def test_only_this_host(listen, says):
    done = subprocess.run([str(BIN / "mmctl"), "--socket", "/nowhere", "exporter", "--listen", listen],
                          capture_output=True, text=True, timeout=limit(10), check=False)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done


def test_unix_socket(root, start, export):
    d = start(policy="elastic", pool="2M", page="16K")
    path = root / "x.sock"
    first = export(d, f"unix:{path}")
    assert path.stat().st_mode & 0o777 == 0o660 and first.value("mmd_up") == 1
    second = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "exporter", "--listen", f"unix:{path}"],
                            capture_output=True, text=True, timeout=limit(10), check=False)
    assert second.returncode == 1 and "in use" in second.stderr, second
    first.process.kill()
    first.process.communicate()
    assert path.is_socket()
    after = export(d, f"unix:{path}")  # what a killed one has left is no obstacle
    assert after.value("mmd_up") == 1
    assert after.end() == (0, "") and not path.exists()
    path.write_text("mine")
    third = subprocess.run([str(BIN / "mmctl"), "--dir", str(d.dir), "exporter", "--listen", f"unix:{path}"],
                           capture_output=True, text=True, timeout=limit(10), check=False)
    assert third.returncode == 1 and "no socket" in third.stderr and path.read_text() == "mine"


def test_hostile_clients(start, export):
    """Wrong methods, paths, bodies and heads; connections that say nothing, or little: a scrape still succeeds."""
    d = start(policy="elastic", pool="2M", page="16K")
    e = export(d)
    assert e.get("/-/healthy")[0].status == 200 and e.get("/")[0].status == 200
    assert e.get("/metrics/")[0].status == 404 and e.get("/" + "a" * 4000)[0].status == 404
    assert e.get(method="HEAD")[1] == ""
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        reply, _ = e.get(method=method, body="x" * 1000)
        assert reply.status == 405 and reply.headers["Allow"] == "GET, HEAD"
    for raw in (b"\0" * 100, b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"A" * 40000,
                b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
                b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100000):
        with e.connect() as s, contextlib.suppress(OSError):
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                pass
    began = time.monotonic()
    idle = [e.connect() for _ in range(60)]
    for s in idle[:20]:
        s.sendall(b"GET /metrics HTTP/1.1\r\n")
    wait_until(lambda: socket_is_closed(idle[0]), 20, "the connections to be ended")
    assert time.monotonic() - began > 5
    for s in idle:
        s.close()
    assert e.value("mmd_up") == 1


def socket_is_closed(s):
    s.setblocking(False)
    try:
        return s.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_mmd_comes_and_goes(start, export):
    d = start(policy="elastic", pool="2M", page="16K")
    e = export(d)
    before = e.scrape()
    d.stop()
    away = e.scrape()
    assert away["mmd_up", ()] == 0 and away["mmd_exporter_failures_total", ()] == 1
    assert not any(n.startswith(("mmd_device", "mmd_account", "mmd_core")) for n, _ in away)
    assert e.get("/-/healthy")[0].status == 200
    d.start()
    again = e.scrape()
    assert again["mmd_up", ()] == 1
    assert again["mmd_start_time_seconds", ()] >= before["mmd_start_time_seconds", ()]
    code, errors = e.end()
    assert code == 0 and errors.count("\n") == 2 and "answers again" in errors, errors


def test_counters_survive_core(busy, export):
    """Another core goes on counting where the last one ended."""
    d, _ = busy
    e = export(d)
    seen = e.scrape()
    for deaths in (1, 2):
        core = d.pids("core")[0]
        os.kill(core, signal.SIGKILL)
        wait_until(lambda core=core: not alive(core), 10, "core to die")
        wait_until(d.answers, 20, "the next core")
        now = e.scrape()
        assert now["mmd_core_restarts_total", ()] == deaths
        counters = {k for k in seen if k[0].endswith(("_total", "_count", "_sum", "_bucket"))} - \
            {("mmd_core_cpu_seconds_total", ()), ("mmd_exporter_failures_total", ())}
        fell = [(k, seen[k], now.get(k)) for k in counters if now.get(k, 0) < seen[k]]
        assert counters and not fell
        assert now["mmd_start_time_seconds", ()] == seen["mmd_start_time_seconds", ()]
        seen = now


def test_nobody_scrapes(start, export):
    """It sleeps: nothing wakes it up, neither after its start nor after a scrape."""
    d = start(policy="elastic", pool="2M", page="16K")
    e = export(d)
    for _ in range(2):
        wait_until(lambda: open(f"/proc/{e.process.pid}/wchan", encoding="ascii").read() != "0", 5, "it to sleep") \
            if os.path.exists(f"/proc/{e.process.pid}/wchan") else None
        time.sleep(0.2)
        before = e.switches()
        time.sleep(1.5)
        assert e.switches() == before
        assert len(os.listdir(f"/proc/{e.process.pid}/task")) == 1
        e.scrape()


# ---- Prometheus ----

def test_alert_rules():
    promtool = tool("promtool")
    for words in (["check", "rules", "mmd-alerts.yml"], ["test", "rules", "mmd-alerts-test.yml"],
                  ["check", "config", "prometheus.yml"]):
        done = subprocess.run([promtool, *words], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    rules = re.findall(r"alert: (\w+)", (MONITORING / "mmd-alerts.yml").read_text())
    tested = set(re.findall(r"alertname: (\w+)\n        exp_alerts", (MONITORING / "mmd-alerts-test.yml").read_text()))
    assert set(rules) == tested


class Prometheus:
    """One of our own, that scrapes an exporter each second."""

    def __init__(self, root, exporter):
        target = urllib.parse.urlsplit(exporter.url).netloc
        config = (MONITORING / "prometheus.yml").read_text().replace("127.0.0.1:9736", target)
        config = re.sub(r"interval: 15s", "interval: 1s", config)
        (root / "prometheus.yml").write_text(config)
        shutil.copy(MONITORING / "mmd-alerts.yml", root)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = root / "prometheus.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [tool("prometheus"), f"--config.file={root}/prometheus.yml", f"--storage.tsdb.path={root}/tsdb",
                 f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"], stdout=log, stderr=log)
        wait_until(self.is_ready, 60, "Prometheus to have read its storage", every=0.1)

    def is_ready(self):
        """Until it has read its storage it refuses connections, and then answers 503 in words that are no JSON."""
        assert self.process.poll() is None, self.log.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit(20))
        with contextlib.closing(connection), contextlib.suppress(ConnectionError):
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == 200
        return False

    def ask(self, path, **params):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit(20))
        with contextlib.closing(connection):
            connection.request("GET", f"/api/v1/{path}?" + urllib.parse.urlencode(params))
            reply = json.loads(connection.getresponse().read())
        assert reply["status"] == "success", reply
        return reply["data"]

    def query(self, expr):
        return self.ask("query", query=expr)["result"]

    def number(self, expr):
        result = self.query(expr)
        return float(result[0]["value"][1]) if result else 0

    def end(self):
        self.process.terminate()
        self.process.wait(limit(30))


@pytest.fixture
def prometheus(root):
    made = []

    def maker(exporter):
        made.append(Prometheus(root, exporter))
        return made[-1]
    yield maker
    for one in made:
        one.end()


def test_prometheus_and_dashboard(ready, export, prometheus):
    """A real one scrapes it; each query of the dashboard and each rule has something to go by."""
    d, tenants = ready(3)
    e = export(d)
    p = prometheus(e)
    wait_until(lambda: p.number("count(mmd_tenant_connected)") == len(tenants), 60, "the first scrape", every=0.1)
    for tenant in tenants:
        tenant.go()
    for tenant in tenants:  # it ends, but stays
        tenant.wait_requests(40)
    done = e.scrape()
    wait_until(lambda: p.number("sum(mmd_tenant_claimed_steps_total)") >= sum(
        value for (name, _), value in done.items() if name == "mmd_tenant_claimed_steps_total"),
        60, "the last steps to be scraped", every=0.1)
    assert p.number('up{job="mmd"}') == 1 and p.number("mmd_up") == 1
    target = p.ask("targets")["activeTargets"][0]
    assert target["health"] == "up" and not target["lastError"], target
    scraped = p.number("scrape_samples_scraped")
    assert scraped == len(e.scrape()), "Prometheus and we count the same samples"
    assert p.number("sum(mmd_pool_bytes)") == 4800 << 10
    assert p.number("count(mmd_tenant_connected)") == len(tenants)
    assert 0 < p.number("sum(rate(mmd_tenant_claimed_steps_total[1m]))") < 1e6
    assert 0 <= p.number("max(rate(mmd_tenant_claimed_stall_seconds_total[1m]))") <= 1
    expressions = []
    for panel in json.loads((MONITORING / "mmd-dashboard.json").read_text())["panels"]:
        expressions += [(panel["title"], target["expr"]) for target in panel.get("targets", [])]
    assert len(expressions) > 30
    for title, expr in expressions:
        expr = expr.replace("$__rate_interval", "1m")
        expr = re.sub(r"\$(instance|device|account)", ".*", expr)
        assert "$" not in expr and p.query(expr), f"{title}: {expr}"
    rules = p.ask("rules")["groups"][0]["rules"]
    wait_until(lambda: all(r["health"] == "ok" for r in p.ask("rules")["groups"][0]["rules"]), 20, "the rules")
    names = {r["name"]: r["query"] for r in rules}
    for name, query in names.items():
        for metric in set(re.findall(r"\bmmd_\w+|\bup\b", query)):
            assert p.query(metric), f"{name}: no series of {metric}"
