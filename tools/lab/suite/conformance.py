# SPDX-License-Identifier: Apache-2.0
"""The part conformance: runs every program of ctest's label, and compares with the software GPU."""

import contextlib
import json
import pathlib
import tempfile

from suite.work import Failure, OutOfTime

QUICK = ("conformance/api", "conformance/memory", "conformance/misuse")
LIMIT_S = 900
# One program may take this part of the time that is left, but at least this many seconds.
SHARE, SHARE_S = 4, 75
IDENTITY_S = 100  # are kept for token identity where it comes next
# Basic programs come first. Those that cause faults come last, as the device may not recover.
FIRST = tuple(f"conformance/{name}" for name in ("api", "memory", "hostmem", "share", "stream", "busy", "wait", "graph"))
LAST = ("conformance/misuse", "conformance/fault")
# Facts that identify the device, and so always differ.
IDENTITY = ("device.", "machine.", "cublas.version")


@contextlib.contextmanager
def ctest_folder(build):
    """Makes a folder for ctest's logs; in the build folder an outer ctest may write its own."""
    with tempfile.TemporaryDirectory(prefix="gpu-suite-ctest.") as folder:
        (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(f'subdirs("{build}")\n')
        yield folder


def programs(suite):
    with ctest_folder(suite.build) as folder:
        done = suite.run("ctest-list", ["ctest", "--test-dir", folder, "-L", "^conformance$", "--show-only=json-v1"])
    try:
        names = [test["name"] for test in json.loads(done.text())["tests"]]
    except (ValueError, KeyError):
        names = []
    if not names:
        raise Failure(f"ctest knows no conformance test in {suite.build}: run the part build")
    order = [*FIRST, *(name for name in names if name not in FIRST + LAST), *LAST]
    return [name for name in order if name in names and (not suite.args.quick or name in QUICK)]


def read_facts(path):
    """Returns (outcomes by test, facts by name) from a file of JSON lines, without incomplete lines."""
    tests, facts = [], {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "outcome" in row:
            tests.append({key: row[key] for key in ("program", "test", "outcome", "seconds", "reason")})
        else:
            facts[f"{row['program']}/{row['fact']}"] = {key: row[key] for key in ("test", "value", "unit")}
    return tests, facts


def kept(suite):
    wanted = "identity" in suite.args.part and suite.state["parts"]["identity"]["outcome"] == "not run"
    return IDENTITY_S if wanted and suite.args.budget else 0


def run_one(suite, name, driver):
    """Runs one program of ctest on one driver."""
    stem = f"{driver}-{name.replace('/', '-')}"
    facts = suite.logs / f"{stem}.facts.json"
    facts.unlink(missing_ok=True)
    with ctest_folder(suite.build) as folder:
        xml = suite.logs / f"{stem}.xml"
        done = suite.run(
            stem,
            ["ctest", "--test-dir", folder, "-R", f"^{name}$", "--output-on-failure", "--output-junit", xml],
            env={"MM_DRIVER": driver, "MM_CONF_FACTS": str(facts)},
            limit=min(LIMIT_S, max((suite.left() - kept(suite)) / SHARE, SHARE_S)),
        )
    tests, told = read_facts(facts)
    text = done.text()
    if not done.ended:
        outcome = "took too long"
    elif done.code:
        outcome = "failed"
    else:
        outcome = "skipped" if "***Skipped" in text else "passed"
    return {"outcome": outcome, "seconds": round(done.seconds, 2), "tests": tests, "facts": told}


def differs(here, there):
    """Returns whether two drivers answer a question differently; durations are not compared."""
    if isinstance(here["value"], str) or isinstance(there["value"], str):
        return here["value"] != there["value"]
    if here["unit"] or here["value"] is None or there["value"] is None:
        return False
    return (here["value"] == 0) != (there["value"] == 0)


def compare(record):
    """Returns the facts whose answer differs from the software GPU's."""
    rows = []
    for name, result in record["programs"].items():
        there = record["software"].get(name, {"facts": {}})["facts"]
        for fact, here in result["facts"].items():
            if fact in there and not fact.split("/", 1)[1].startswith(IDENTITY) and differs(here, there[fact]):
                rows.append(
                    {"fact": fact, "test": here["test"], "software": there[fact]["value"], "here": here["value"]}
                )
    return rows


def beside(suite):
    """Runs the same programs on the software GPU, after the device's, and returns the differences."""
    record = suite.state["parts"]["conformance"]
    record.setdefault("software", {})
    for name in record.get("programs", {}) if not suite.software else []:
        if name not in record["software"]:
            if suite.left() < 20:
                suite.say("conformance: no time left for the software GPU beside it")
                return
            record["software"][name] = run_one(suite, name, "software")
            record["differs"] = compare(record)
            suite.save()


def run(suite, record):
    suite.program("mmd")
    names = programs(suite)
    record["asked"] = names
    record.setdefault("programs", {})
    record.setdefault("software", {})
    late = [name for name in names if record["programs"].get(name, {}).get("outcome") == "took too long"]
    try:
        # A program that took too long is tried again after all others.
        for name in [name for name in names if name not in record["programs"]] + late:
            suite.need(10 + kept(suite))
            record["programs"][name] = run_one(suite, name, suite.args.driver)
            suite.say(f"{name}: {record['programs'][name]['outcome']}")
            suite.save()
    except OutOfTime as error:
        left = [name for name in names if name not in record["programs"]]
        raise OutOfTime(f"{error}; not run: {', '.join(left or late)}") from None
    finally:
        record["differs"] = compare(record)
    bad = [name for name in names if record["programs"][name]["outcome"] in ("failed", "took too long")]
    if bad:
        raise Failure(f"{len(bad)} of {len(names)} programs: {', '.join(bad)}")
