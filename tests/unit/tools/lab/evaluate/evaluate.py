#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""evaluate.py SOURCE BUILD: mmevaluate's table of cases, its arithmetic, and how it runs mmsim."""

import json
import math
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
BIN = BUILD / "bin"
PATIENCE_S = 300

sys.dont_write_bytecode = True
sys.path.insert(0, str(BUILD / "share" / "mmd"))
from evaluate import (barcases, barreport, barruns, bars, cases, charts, pays, points,  # noqa: E402
                      report, results, runs, stats, targets)

# A simulator whose numbers follow from its command line. It writes each line to the file $FAKE_LOG;
# a line with $FAKE_FAIL fails, one with $FAKE_DIE is killed, one with $FAKE_HANG stays for good.
FAKE = """\
#!/usr/bin/python3 -S
import json, os, sys, time, zlib
words = sys.argv[1:]
line = " ".join(words)
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(f"{os.getpid()} {line}\\n")
def wanted(name):
    return os.environ.get(name) and os.environ[name] in line and "--bound" not in words
if wanted("FAKE_HANG"):
    time.sleep(100000)
if wanted("FAKE_FAIL"):
    sys.exit("mmsim: it is broken\\n\\n")
if wanted("FAKE_DIE"):
    os.kill(os.getpid(), 9)
if wanted("FAKE_REPLACE"):
    with open(__file__, "a") as program:
        program.write("\\n")
if wanted("FAKE_BABBLE"):
    print("{}")
    sys.exit()
def number(*salt):
    return 1 + zlib.crc32(repr((words, salt)).encode()) % 1000 / 100
if "--bound" in words:
    windows = int(words[words.index("--windows") + 1]) if "--windows" in words else 1
    print(json.dumps({"commit": "abc", "throughput_tok_s": number(), "kv_fits_bytes": number(1),
                      "windows": [{"busy_s": number(w)} for w in range(windows)]}))
    sys.exit()
keys = KEYS
tenants = words[words.index("--combo") + 1] == "C1" and 3 or 2 if "--combo" in words else 12
def numbers(*salt):
    return {**{key: number(*salt, key) for key in keys},
            "attainment": max(0.0, 1 - 0.1 * float(words[words.index("--rate") + 1].split(",")[0])),
            "tenants": [{key: number(*salt, key, t) for key in keys} for t in range(tenants)]}
print(json.dumps({"commit": "abc", "results": {
    policy: {**numbers(policy), "windows": [numbers(policy, w) for w in range(3)]}
    for policy in words[words.index("--policy") + 1].split(",")}}))
""".replace("KEYS", repr(tuple(dict.fromkeys(
    (*results.KEYS, *barruns.KEYS, *barruns.TENANT_KEYS)))))


def run_of(throughput, peak=0, preemptions=1, streamed=0, cold=0):
    """The numbers of a run: of each policy, with two windows around its throughput."""
    run = {}
    for policy, value in throughput.items():
        run[policy] = {"throughput_tok_s": value, "window_tok_s": value, "attainment": 0.5,
                       "attained_tok_s": value / 2, "jain": 1.0, "ttft_p50_s": 1.0,
                       "ttft_p99_s": 100 / value if value else 0.0, "tbt_p50_s": 0.4,
                       "tbt_p99_s": 0.5, "preemptions": preemptions, "bytes_streamed": streamed,
                       "plan_changes": 0, "kv_peak_bytes": peak}
        run[policy]["tenants"] = [[0.5 * value, 0.5 * value], [0.4 * value, 0.6 * value]]
        run[policy]["cold_bytes"] = cold
        run[policy]["windows"] = {key: [0.9 * value, 1.1 * value] for key in results.WINDOW_KEYS}
    return run


def result_of(recompute, remap, unlimited, peak=999, **more):
    """A result of figure 8 with these throughputs."""
    point = points.Point("fig8", "drain-C1-alpaca", "", "C1", 1, 4,
                         ("recompute", "remap", "unlimited"), ("--rate", "4"))
    run = run_of({"recompute": recompute, "remap": remap, "unlimited": unlimited}, peak, **more)
    return results.Result(point, "", run, 400.0, 1000.0)


class Table(unittest.TestCase):
    def list_points(self, **settings):
        settings = points.Settings(**settings)
        return [point for curve in points.list_curves(settings)
                for point in points.curve_points(curve, settings, lambda curve: 123.456)]

    def test_sections(self):
        names = [section.name for section in cases.SECTIONS]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual({case.section for case in cases.CASES}, set(names))
        for section in cases.SECTIONS:
            if section.stated:
                self.assertTrue(section.averages, section.name)

    def test_names(self):
        """Each point has a file of its own, and each section is in both sizes."""
        for quick in (False, True):
            found = self.list_points(quick=quick)
            self.assertEqual(len({point.id for point in found}), len(found))
            self.assertEqual({point.section for point in found},
                             {section.name for section in cases.SECTIONS})
        self.assertEqual(len(self.list_points(quick=True, only=("fig9",))), 9)
        self.assertEqual(len(self.list_points(quick=True, only=("fig17", "pcie"))), 6 + 14)

    def test_rates(self):
        """Points of a curve have rising rates, and variants of a chart the same ones."""
        by_curve = {}
        for point in self.list_points():
            by_curve.setdefault((point.section, point.chart), {}) \
                .setdefault(point.variant, []).append(point.rate)
        for chart in by_curve.values():
            self.assertEqual(len(set(map(tuple, chart.values()))), 1)
            rates = next(iter(chart.values()))
            self.assertEqual(rates, sorted(set(rates)))
        self.assertEqual(points.round_rate(1234.5), 1230)
        self.assertEqual(points.round_rate(0.0123456), 0.0123)
        self.assertEqual(points.divide_rate((), 4), "4")
        self.assertEqual(points.divide_rate((1, 3), 4), "1,3")
        self.assertEqual(points.divide_rate((4, 1), 1), "0.8,0.2")

    def test_a_line(self):
        point = self.list_points(quick=True, windows=2, seconds=9, seed=5, trace="t.csv",
                                 alpaca="a.csv", only=("fig8",))[0]
        self.assertEqual(point.line, "--profile gh200-96 --turns drain --combo C1 --lengths a.csv "
                                     "--rate 12.3 --policy recompute,elastic,swap,naive,"
                                     "naive-bounded,remap,unlimited --seconds 9 --windows 2 "
                                     "--seed 5 --trace t.csv")
        self.assertEqual(point.id, "fig8-drain-C1-alpaca-12.3")

    def test_arrivals_of_their_own(self):
        """A case that has its own arrivals has no trace, which mmsim would refuse."""
        found = self.list_points(trace="t.csv")
        own = [point for point in found if "--arrivals" in point.words]
        self.assertTrue(own)
        for point in found:
            self.assertEqual("--trace" in point.words, point not in own)

    def test_mmsim_takes_each_curve(self):
        settings = points.Settings(seconds=1, windows=1)
        for curve in points.list_curves(settings):
            point = next(points.curve_points(curve, settings, lambda curve: 50))
            done = subprocess.run([BIN / "mmsim", "--bound", "--json", *point.words],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            bound, fits = results.take_bound(json.loads(done.stdout))
            self.assertTrue(bound > 0 and fits > 0, point.line)

    def test_switches(self):
        """Each switch that is on by default is switched off by an ablation."""
        text = (SOURCE / "mmd" / "core" / "knobs.c").read_text()
        knobs = re.findall(r'\.name = "([^"]+)",([^{}]*)', text)
        on = [name for name, rest in knobs if "SWITCH," in rest and "MM_SWITCH_ON" in rest]
        self.assertTrue(on)
        self.assertEqual(list(cases.SWITCHES), on)


class Arithmetic(unittest.TestCase):
    def test_student(self):
        for p, degrees, value in ((0.975, 1, 12.7062), (0.975, 3, 3.18245), (0.975, 7, 2.36462),
                                  (0.995, 10, 3.16927), (0.025, 7, -2.36462)):
            self.assertAlmostEqual(stats.t_quantile(p, degrees), value, places=4)

    def test_paired_ratio(self):
        ratio = stats.paired_ratio([1, 4], [2, 2])
        self.assertAlmostEqual(ratio.ratio, 1)
        half = 12.706204736 * math.sqrt(2 * math.log(2) ** 2 / 1 / 2)
        self.assertAlmostEqual(ratio.low, math.exp(-half))
        self.assertAlmostEqual(ratio.high / math.exp(half), 1, places=6)
        one = stats.paired_ratio([3], [2])
        self.assertEqual((one.ratio, one.low, one.n), (1.5, one.ratio, 1))
        lost = stats.paired_ratio([0, 2, 0], [1, 1, 0])
        self.assertEqual((lost.ratio, lost.low, lost.n, lost.lost), (2, 0, 1, 1))
        self.assertEqual(stats.paired_ratio([0], [1]).low, 0)
        self.assertTrue(math.isnan(stats.paired_ratio([0], [0]).low))

    def test_numbers(self):
        result = result_of(100, 190, 200)
        self.assertEqual(result.value("remap", "throughput_tok_s"), 190)
        self.assertTrue(math.isnan(result.value("naive", "throughput_tok_s")))
        self.assertAlmostEqual(result.gain("remap"), 0.9)
        self.assertAlmostEqual(result.of_bound("remap"), 190 / 400)
        self.assertTrue(result.fits())
        paired = result.paired("remap", "recompute", "throughput_tok_s")
        self.assertAlmostEqual(paired.ratio, 1.9)
        self.assertAlmostEqual(paired.low, 1.9)
        self.assertTrue(math.isnan(result_of(100, 101, 101).gain("remap")))  # nothing to gain
        self.assertFalse(result_of(100, 190, 200, peak=1001).fits())

    def tally(self, *found):
        return {tally.target.name: tally for tally in targets.tally_targets(found)}

    def test_targets(self):
        reached = self.tally(result_of(100, 196, 200))
        gain = reached["gh200-96, demand fits what weights can give: G ≥ 0.95"]
        self.assertEqual((gain.verdict, gain.of, gain.reached), ("reached", 1, 1))
        self.assertAlmostEqual(gain.value, 0.96)
        ttft = reached["the same: P99 TTFT ≤ 1.10 × unlimited"]
        self.assertEqual((ttft.verdict, round(ttft.value, 4)), ("reached", 1.0204))
        worse = f"never worse than recompute: throughput, {targets.WORSE}"
        self.assertEqual(reached[worse].verdict, "reached")
        self.assertEqual(reached[worse.replace("recompute", "elastic")].verdict, "–")

        missed = self.tally(result_of(100, 90, 200, peak=1001))
        self.assertEqual(missed[gain.target.name].of, 0)
        bound = missed["gh200-96, beyond that: throughput ≥ 0.90 of the certified bound"]
        self.assertEqual((bound.verdict, bound.value), ("not reached", 0.225))
        self.assertAlmostEqual(missed[worse].value, 0.9)
        # Windows in which remap serves no request count as lost.
        lost = self.tally(result_of(100, 0, 200, peak=1001))[worse]
        self.assertEqual((lost.verdict, lost.of, lost.value), ("not reached", 1, 0))

    def test_the_farthest(self):
        near, far = result_of(100, 150, 200), result_of(100, 120, 200)
        far.point = points.Point("fig8", "other", "", "C1", 1, 4, near.point.policies, ())
        for order in ((near, far), (far, near)):
            gain = targets.tally_targets(order)[0]
            self.assertEqual((gain.of, gain.reached, gain.where), (2, 0, "fig8-other-4"))

    def test_nothing_to_gain(self):
        idle = "with nothing to gain nothing is streamed (1: so it is)"
        for more, verdict in (({"preemptions": 0}, "reached"), ({}, "–"),
                              ({"preemptions": 0, "streamed": 9}, "not reached")):
            self.assertEqual(self.tally(result_of(100, 100, 100, **more))[idle].verdict, verdict)

    def test_report(self):
        head = {"version": "1", "commit": "abc", "command": "mmevaluate", "host": "Linux",
                "settings": {"windows": 2}}
        found = [result_of(100, 150, 200)]
        text = report.make_report(head, found, frozenset())
        self.assertIn("## Figure 8", text)
        self.assertNotIn("## Figure 9", text)
        self.assertIn("| C1, short | 1 | +50.0 % | -33.3 % | +0.0 % |", text)
        self.assertIn("| C1, the paper's |  | +39.9 % | -96.7 % | -54.4 % |", text)
        self.assertIn("| cases | n | remap | unlimited |", text)
        self.assertIn("| C1, output tokens/s | 1 | +50.0 % | +100.0 % |", text)
        self.assertIn("| C1, P99 TTFT | 1 | -33.3 % | -50.0 % |", text)
        self.assertIn("| requests/s | recompute | remap | unlimited | G | of bound | fits |", text)
        self.assertIn("| 4 | 100.0 | 150.0 | 200.0 | 0.500 | 0.375 | yes |", text)
        self.assertNotIn("](figures/", text)
        self.assertIn("](figures/fig8-drain-C1-alpaca.svg)",
                      report.make_report(head, found, frozenset(["fig8-drain-C1-alpaca"])))
        numbers = report.make_json(head, found)
        self.assertEqual(numbers["points"][0]["gain"], 0.5)
        self.assertEqual(numbers["points"][0]["results"]["remap"]["throughput_tok_s"], 150)
        json.dumps(numbers, allow_nan=False)

    def test_a_policy_that_some_cases_lack(self):
        few, more = result_of(100, 150, 200), result_of(100, 150, 200)
        more.run["swap"] = more.run["unlimited"]
        section = cases.SECTIONS[0]
        text = "\n".join(report.policy_lines(section, [few, more]))
        self.assertIn("| cases | n | swap | remap | unlimited |", text)
        self.assertIn("| C1, output tokens/s | 2 | +100.0 % (1) | +50.0 % | +100.0 % |", text)

    def test_variants(self):
        """A chart of variants has recompute once, and remap for each of them."""
        found = []
        for variant in ("on", "off"):
            result = result_of(100, 150, 200)
            result.point = points.Point("fig16", "x", variant, "", 1, 4, ("recompute", "remap"), ())
            found.append(result)
        chart, = charts.list_charts(found, "fig16")
        self.assertEqual([line.label for line in chart.lines], ["recompute", "on", "off"])

    def test_lines_of_all_there_is(self):
        """A chart of other policies than recompute and remap has each of its variants."""
        found = []
        for variant, policies in (("3GB", ("recompute", "pie")), ("5GB", ("pie",))):
            point = points.Point("pie6", "x", variant, "", None, 4, policies, ())
            found.append(results.Result(point, "", run_of(dict.fromkeys(policies, 100))))
        labels = [line.label for line in charts.list_charts(found, "pie6")[0].lines]
        self.assertEqual(labels, ["3GB recompute", "3GB pie", "5GB pie"])
        self.assertEqual([line.label for line in charts.list_charts(found[1:], "pie6")[0].lines],
                         ["5GB"])

    def pair(self, off, on, **more):
        """A point of a pair of variants, which is compared with its base."""
        found = []
        for variant, base, value in (("cold-off", "", off), ("cold-on", "cold-off", on)):
            result = result_of(100, value, 100, **(more if base else {**more, "cold": 0}))
            result.point = points.Point("cold-never-worse", "x", variant, "", 1, 4,
                                        result.point.policies, (), base)
            found.append(result)
        results.join_bases(found)
        return found

    def test_pairs(self):
        names = [target.name for target in targets.TARGETS if "cold" in target.name]
        self.assertEqual(len(names), 4)
        for off, on, more, verdicts in (
                (100, 100, {"preemptions": 0}, ["reached"] * 4),
                (100, 100, {"preemptions": 0, "cold": 7}, ["reached"] * 3 + ["not reached"]),
                (100, 98, {"cold": 7}, ["not reached"] * 3 + ["–"])):
            found = self.pair(off, on, **more)
            tallies = self.tally(*found)
            self.assertEqual([tallies[name].verdict for name in names], verdicts)
            self.assertEqual([tallies[name].of for name in names[:3]], [1, 1, 1])
        self.assertAlmostEqual(tallies[names[2]].value, 0.98)
        # What a single tenant loses shows, although all together lose nothing.
        found[1].run["remap"]["tenants"][1] = [1, 1]
        self.assertLess(self.tally(*found)[names[2]].value, 0.05)
        head = {"version": "1", "commit": "abc", "command": "mmevaluate", "host": "Linux",
                "settings": {"windows": 2}}
        self.assertIn("| x, cold-on | 4 | 0.980 [0.980, 0.980] |",
                      report.make_report(head, found, frozenset()))
        over = report.make_json(head, found)["points"][1]["over_base"]
        self.assertAlmostEqual(over["throughput_tok_s"][1], 0.98)
        self.assertEqual(over["cold_bytes"], 7)

    def test_takes_tenants_and_cold_blocks(self):
        whole = dict.fromkeys((*results.KEYS, *results.WINDOW_KEYS), 1)
        window = {**whole, "tenants": [{"own_tok_s": 3}, {"own_tok_s": 4}]}
        printed = {"results": {"remap": {**whole, "windows": [window, window]}}, "details": {
            "remap": [{"tenants": [{"cold_bytes": 5}, {}]}, {"tenants": [{"cold_bytes": 6}, {}]}]}}
        taken = results.take_run(["remap"], printed)["remap"]
        self.assertEqual((taken["tenants"], taken["cold_bytes"]), ([[3, 3], [4, 4]], 11))
        window["tenants"] = [{}]
        with self.assertRaises(runs.MalformedError):
            results.take_run(["remap"], printed)

    def test_what_is_no_result(self):
        good = {"results": {"remap": {**{key: 1 for key in results.KEYS}, "windows": []}}}
        self.assertEqual(results.take_run(["remap"], good)["remap"]["tbt_p99_s"], 1)
        for policies, bad in ((["recompute"], good), (["remap"], {}), (["remap"], []),
                              (["remap"], {"results": 3}),
                              (["remap"], {"results": {"remap": {"windows": []}}})):
            with self.assertRaises(runs.MalformedError):
                results.take_run(policies, bad)
        for bad in ({}, {"throughput_tok_s": True, "kv_fits_bytes": 1},
                    {"throughput_tok_s": math.inf, "kv_fits_bytes": 1}):
            with self.assertRaises(runs.MalformedError):
                results.take_bound(bad)
        self.assertEqual(points.take_saturation({"windows": [{"busy_s": 2}]}), 1500)
        for bad in ({}, {"windows": []}, {"windows": [{}]}, {"windows": [{"busy_s": 0}]}):
            with self.assertRaises(runs.MalformedError):
                points.take_saturation(bad)


class Bars(unittest.TestCase):
    def test_search(self):
        """A coarse grid and small steps find the top of a hill, and look at no point twice."""
        looked = []

        def score(points_):
            looked.extend(points_)
            return [-math.inf if x > 30 else -(x - 17) ** 2 - (y - 23) ** 2 for x, y in points_]
        levels = [tuple(range(0, 41, 10)), tuple(range(0, 41, 10))]
        self.assertEqual(barruns.search_grid(levels, (4, 2, 1), score), (17, 23))
        self.assertEqual(len(looked), len(set(looked)))
        self.assertLess(len(looked), 100)
        self.assertEqual(barruns.search_grid([(0, 5)], (1,), lambda found: [0.0] * len(found)),
                         (0,))

    def test_bisection(self):
        for limit in (0.05, 0.4, 3.1):
            rates = []

            def attained(rate):
                rates.append(rate)
                return 1.0 if rate <= limit else 0.5
            found = barruns.bisect_rate(attained, 0.9, 0.02, 4)
            self.assertTrue(limit / 1.04 <= found <= limit)
            self.assertLess(len(rates), 14)
        self.assertEqual(barruns.bisect_rate(lambda rate: 0.5, 0.9, 0.02, 4), 0)
        self.assertEqual(barruns.bisect_rate(lambda rate: 1.0, 0.9, 0.02, 4), 4)

    def test_verdicts(self):
        ratio = stats.Ratio(1.02, 0.97, 1.07, 8)
        self.assertEqual(bars.judge(ratio, 0.99), "reached")
        self.assertEqual(bars.judge(ratio, 0.99, low=True), "unsure")
        self.assertEqual(bars.judge(ratio, 1.05), "missed")
        self.assertEqual(bars.judge(stats.Ratio(0.9, 0.8, 0.98, 8), 0.99, low=True), "missed")
        self.assertEqual(bars.judge(stats.Ratio(), 0.99), "–")
        self.assertEqual(bars.judge(stats.paired_ratio([0], [1]), 0.99, low=True), "missed")
        self.assertEqual([bars.judge_most(value, 2) for value in (2, 2.1, math.nan)],
                         ["reached", "missed", "–"])

    def test_where_it_pays(self):
        def case(where, ratio, points_):
            return pays.Compared(where, stats.Ratio(ratio, ratio, ratio, 1), points_)
        text = pays.pays_paragraph([case("A", 1.5, 0.1), case("A", 1.5, 0.3), case("B", 1.0, 0.0),
                                    case("C", 1.5, -0.1), case("D", 1.0, -0.1),
                                    case("E", math.nan, 0)])
        self.assertIn("recompute and elastic: A (2: × 1.50, +20 points).", text)
        self.assertIn("(within 2 %): B (1: × 1.00, +0 points).", text)
        self.assertIn("for the other**: C (1: × 1.50, -10 points).", text)
        self.assertIn("costs**: D (1: × 1.00, -10 points).", text)
        self.assertIn("costs**: nowhere.", pays.pays_paragraph([case("A", 1.5, 0.1)]))

    def test_cases(self):
        """Each case has a name of its own, and mmsim takes its line."""
        for sizes in (barcases.Sizes(quick=True, trace="t"), barcases.Sizes()):
            grid = list(barcases.list_grid(sizes))
            self.assertEqual(len({case.name for case in grid}), len(grid))
        sizes = barcases.Sizes(seconds=1, windows=1)
        lines = [barcases.Case(device, models, mode, 1.0, arrivals, lengths, whole)
                 .words(sizes, 1) for device in barcases.DEVICES for models in bars.LAYERS
                 for mode, arrivals, lengths, whole in (("quantum", "bursts", "sharegpt", False),
                                                        ("space", "steady", "alpaca", True))]
        day = (*barcases.DAY_FLAGS.split(), "--seconds", "20", "--sharing", "spatial")
        for line in (*lines, day):
            done = subprocess.run([BIN / "mmsim", "--json", *line, "--policy", "recompute"],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = barruns.take_case(["recompute"], json.loads(done.stdout))["recompute"]
            self.assertEqual(len(found.tenants), len(found.tenant_windows))
            self.assertEqual(found.over(found, "throughput_tok_s").ratio, 1)
        layers = {name: json.loads(subprocess.run(
            [BIN / "mmsim", "--json", "--combo", name, "--policy", "recompute", "--seconds", "1"],
            capture_output=True, text=True, timeout=PATIENCE_S).stdout)["tenants"]
            for name in bars.LAYERS}
        for name, tenants in layers.items():
            self.assertEqual(tuple(t["layers"] for t in tenants), bars.LAYERS[name])
            self.assertEqual(tuple(t["model"] for t in tenants), bars.SHAPES[name])


class Running(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-evaluate-")
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)
        self.fake = self.root / "fake"
        self.fake.write_text(FAKE)
        self.fake.chmod(0o755)
        self.log = self.root / "log"
        # Plots take long, and have a test of their own in tests/e2e.
        (self.root / "none" / "matplotlib").mkdir(parents=True)
        (self.root / "none" / "matplotlib" / "__init__.py").write_text("raise ImportError\n")

    def command(self, *words, out="out", only="fig17", simulator=None):
        return [str(word) for word in (
            BIN / "mmevaluate", "--quick", "--only", only, "--out", self.root / out,
            "--simulator", simulator or self.fake, *words)]

    def env(self, **more):
        return {**os.environ, "FAKE_LOG": str(self.log), "PYTHONPATH": str(self.root / "none"),
                **more}

    def evaluate(self, *words, env=None, **more):
        return subprocess.run(self.command(*words, **more), env=self.env(**(env or {})),
                              capture_output=True, text=True, timeout=PATIENCE_S, cwd=self.root)

    def lines_run(self):
        """How many runs there were since the last call, without those that say what load 1 is."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sum("--policy" in line for line in lines)

    def test_any_number_at_once(self):
        """The report does not depend on how many simulators run at once and which ends first."""
        texts = []
        for jobs in (1, 4):
            done = self.evaluate("--jobs", jobs, out=f"out{jobs}", only="fig8,fig17,pcie")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("matplotlib is not installed", done.stderr)
            self.assertEqual(done.stdout, f"{self.root}/out{jobs}/evaluation.md\n")
            folder = self.root / f"out{jobs}"
            texts.append({str(path.relative_to(folder)): path.read_text()
                          for path in sorted(folder.rglob("*")) if path.is_file()})
        self.assertEqual(texts[0], texts[1])
        self.assertIn("evaluation.json", texts[0])

    def test_bars(self):
        """All groups, beside another build; a second call plays nothing; --only makes a part."""
        today = self.root / "today" / "bin"
        today.mkdir(parents=True)
        (today / "mmsim").write_text(FAKE + "\n")
        (today / "mmsim").chmod(0o755)

        def judged(*words):
            command = [str(word) for word in (
                BIN / "mmevaluate", "--quick", "--bars", "--today", self.root / "today", "--out",
                self.root / "out", "--simulator", self.fake, "--jobs", "4", *words)]
            return subprocess.run(command, env=self.env(), capture_output=True, text=True,
                                  timeout=PATIENCE_S, cwd=self.root)
        done = judged()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{self.root}/out/bars.md\n")
        self.assertGreater(self.lines_run(), 300)
        text = (self.root / "out" / "bars.md").read_text()
        self.assertIn("**Where remapping pays**", text.split("\n")[2])
        for group, title in bars.GROUPS.items():
            self.assertIn(f"## {group}: {title}", text)
        numbers = json.loads((self.root / "out" / "bars.json").read_text())
        self.assertEqual((numbers["schema"], numbers["today"], numbers["failures"]), (1, "abc", []))
        self.assertEqual({row["group"] for row in numbers["rows"]}, set(bars.GROUPS))
        self.assertEqual({row["verdict"] for row in numbers["rows"]},
                         {"reached", "unsure", "missed", "–"})
        # The fake's attainment falls by a tenth with each request/s.
        capacity = {(entry["case"], entry["policy"], entry["build"]): entry["requests_s"]
                    for entry in numbers["found"]["capacity"]}
        self.assertTrue(0.96 < capacity["gh200-C1-quantum-1-gaps-sharegpt", "remap", "ours"] <= 1)
        again = judged("--json")
        self.assertEqual(json.loads(again.stdout)["rows"], numbers["rows"])
        self.assertEqual(self.lines_run(), 0)
        self.assertEqual(judged("--only", "light").returncode, 0)
        self.assertNotIn("## ideal", (self.root / "out" / "bars.md").read_text())
        self.refused(2, "--only ideal: give --bars", only="ideal")
        self.refused(2, "--only fig17: not a bar", "--bars")
        self.refused(2, "--today is for --bars", "--today", self.root)
        self.refused(1, "cannot run today's simulator", "--bars", "--today", self.root, only="day")

    def test_json(self):
        done = self.evaluate("--json", "--seed", "7")
        self.assertEqual(done.returncode, 0, done.stderr)
        numbers = json.loads(done.stdout)
        self.assertEqual(done.stdout, (self.root / "out" / "evaluation.json").read_text())
        self.assertEqual(numbers["settings"], {"quick": True, "trace": None, "alpaca": "alpaca",
                                               "windows": 4, "seconds": 30, "seed": 7,
                                               "only": ["fig17"]})
        self.assertEqual(len(numbers["points"]), 6)

    def test_a_kept_run_is_not_repeated(self):
        self.assertEqual(self.evaluate().returncode, 0)
        self.assertEqual(self.lines_run(), 12)
        before = (self.root / "out" / "evaluation.md").read_bytes()
        again = self.evaluate()
        self.assertIn("12 were there before", again.stderr)
        self.assertEqual(self.lines_run(), 0)
        self.assertEqual((self.root / "out" / "evaluation.md").read_bytes(), before)
        # Neither another line, nor another program, nor another file counts as the same.
        self.evaluate("--seed", "2")
        self.assertEqual(self.lines_run(), 12)
        self.fake.write_text(FAKE + "\n")
        self.evaluate("--seed", "2")
        self.assertEqual(self.lines_run(), 12)
        trace = self.root / "trace.csv"
        for text in ("1", "2"):
            trace.write_text(text)
            self.evaluate("--seed", "2", "--trace", trace)
            self.assertEqual(self.lines_run(), 12)

    def test_a_program_that_changes(self):
        """Runs of two programs are not kept under the digest of one, nor mixed in a report."""
        done = self.evaluate("--jobs", "1", env={"FAKE_REPLACE": "--rate"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("has changed meanwhile", done.stderr)
        self.assertIn("6 of 6 cases failed", done.stderr)
        self.assertEqual(self.lines_run(), 1)
        self.assertEqual(list((self.root / "out" / "data").glob("fig17*.json")), [])
        self.assertEqual(self.evaluate().returncode, 0)

    def test_a_spoiled_file_counts_for_nothing(self):
        self.evaluate()
        self.lines_run()
        files = sorted((self.root / "out" / "data").glob("fig17*.json"))
        for path, text in zip(files, ("", "[]", "{", '{"key": 1}', '{"output": {}}')):
            path.write_text(text)
        self.assertEqual(self.evaluate().returncode, 0)
        self.assertEqual(self.lines_run(), 5)

    def test_a_failed_run(self):
        """It is a line, a place in the report and status 1; the others stand; it is run again."""
        for name, says in (("FAIL", "ended with status 1: mmsim: it is broken"),
                           ("DIE", "killed by SIGKILL"), ("BABBLE", "no results of recompute")):
            done = self.evaluate(env={f"FAKE_{name}": "rho=1,"}, out=name)
            self.assertEqual(done.returncode, 1)
            failures = [line for line in done.stderr.splitlines() if says in line]
            self.assertEqual(len(failures), 3, done.stderr)
            self.assertIn("mmevaluate: 3 of 6 cases failed; the report names them", done.stderr)
            text = (self.root / name / "evaluation.md").read_text()
            self.assertEqual(text.count("**Failed**"), 3)
            self.assertIn("**3 of 6 cases failed", text)
            self.lines_run()
            self.assertEqual(self.evaluate(out=name).returncode, 0)
            self.assertEqual(self.lines_run(), 3)
            self.assertNotIn("Failed", (self.root / name / "evaluation.md").read_text())

    def interrupt(self, number):
        """Ends an evaluation whose runs with rho=1 are under way; returns their pids."""
        with subprocess.Popen(self.command("--jobs", "3"), env=self.env(FAKE_HANG="rho=1,"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + PATIENCE_S
            pids = []
            while len(pids) < 3:
                self.assertLess(time.monotonic(), deadline)
                self.assertIsNone(process.poll())
                time.sleep(0.02)
                lines = self.log.read_text().splitlines() if self.log.exists() else []
                pids = [int(line.split()[0]) for line in lines
                        if "rho=1," in line and "--bound" not in line]
            process.send_signal(number)
            out, errors = process.communicate(timeout=PATIENCE_S)
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertFalse([path for path in (self.root / "out").rglob(".*")])
        return process.returncode, out, errors

    def test_interrupted(self):
        """Ctrl-C and the like end the simulators, and the same command goes on from there."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            status, out, errors = self.interrupt(number)
            self.assertEqual((status, out), (1, ""), errors)
            self.assertIn(f"ended by {number.name}; what has been run is in", errors)
            self.assertFalse((self.root / "out" / "evaluation.md").exists())
            self.lines_run()
        kept = len(list((self.root / "out" / "data").glob("fig17*.json")))
        self.assertGreater(kept, 0)
        self.assertEqual(self.evaluate().returncode, 0)
        self.assertEqual(self.lines_run(), 12 - kept)

    def test_killed(self):
        """The simulators end with an mmevaluate that had no chance to end them."""
        if subprocess.run(["which", "setpriv"], capture_output=True).returncode:
            self.skipTest("there is no setpriv")
        self.assertEqual(self.interrupt(signal.SIGKILL)[0], -signal.SIGKILL)

    def refused(self, status, says, *words, **more):
        done = self.evaluate(*words, **more)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual((done.stdout, len(done.stderr.splitlines())), ("", 1), done.stderr)

    def test_usage(self):
        self.refused(2, "'fig99' is none of: fig8, ", only="fig8,fig99")
        self.refused(2, "'' is none of", only="")
        for flag, value in (("--jobs", "0"), ("--jobs", "x"), ("--windows", "1001"),
                            ("--seconds", "1.5"), ("--seed", "-1"), ("--seed", str(2 ** 32))):
            self.refused(2, f"{flag}: '{value}' is not a whole number within", f"{flag}={value}")
        self.refused(2, "unexpected argument 'stray'", "stray")
        self.refused(2, "--wndows: unknown option; did you mean --windows?", "--wndows", "3")
        self.refused(2, "divides lengths at commas", "--alpaca", "a,b")
        self.refused(2, "--list is not for --bars", "--bars", "--list")
        self.refused(2, "--trace: needs a value", "--trace")
        self.refused(2, "--trace: is empty; give a name", "--trace=")

    def test_impossible(self):
        self.refused(1, "no such file", simulator=self.root / "nowhere")
        self.refused(1, "it may not be executed", simulator="/etc/passwd")
        self.refused(1, "ended with status 1", simulator="/bin/false")
        self.refused(1, "/nowhere/trace.csv", "--trace", "/nowhere/trace.csv")
        self.refused(1, f"{self.root}: not a file", "--trace", self.root)
        (self.root / "file").write_text("")
        self.refused(1, f"{self.root}/file/out: Not a directory", out="file/out")
        broken = self.root / "broken.csv"
        broken.write_text("arrival_s\n1\nx\n")
        self.refused(1, "broken.csv", "--trace", broken, simulator=BIN / "mmsim")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(self.command("--list"), stdout=full, stderr=subprocess.PIPE,
                                  text=True, env=self.env(FAKE_LOG="/dev/null"), timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr.splitlines()),
                         (1, ["mmevaluate: standard output: No space left on device"]))

    def test_a_file_is_whole(self):
        """What cannot be written leaves what was there, and nothing else."""
        path = self.root / "it"
        runs.write_file(path, "before")
        with self.assertRaises(UnicodeEncodeError):
            runs.write_file(path, "after \ud800")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        with self.assertRaises(OSError) as caught:
            runs.write_file(path, "x" * 1000)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(caught.exception.filename, str(path))
        self.assertEqual(path.read_text(), "before")
        self.assertEqual([p.name for p in self.root.iterdir() if p.name.startswith(".")], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
