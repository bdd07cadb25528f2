#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""configure.py CMAKE SOURCE: a build without what only tests need, and the list of what a build needs."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CMAKE, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
PATIENCE_S = 600
SECTIONS = ("build", "tests", "check", "deb")


def shell(script):
    return subprocess.run(["bash", "-euc", script], cwd=SOURCE, capture_output=True, text=True, check=True).stdout


class Configure(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-configure-")
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)

    def packages_but(self, hidden):
        """A folder with all that pkg-config finds here, but for @hidden: as where it is not installed."""
        folder = self.root / "pkgconfig"
        folder.mkdir()
        found = subprocess.run(["pkg-config", "--variable=pc_path", "pkg-config"], capture_output=True, text=True,
                               check=True).stdout.strip().split(":")
        places = [*os.environ.get("PKG_CONFIG_PATH", "").split(":"), *os.environ.get("PKG_CONFIG_LIBDIR", "").split(":"),
                  *found]
        for path in (path for place in places if place for path in pathlib.Path(place).glob("*.pc")):
            link = folder / path.name
            if path.name != hidden and not link.is_symlink():
                link.symlink_to(path)
        return {"PKG_CONFIG_LIBDIR": str(folder), "PKG_CONFIG_PATH": ""}

    def configure(self, *words, env):
        build = self.root / "build"
        done = subprocess.run([CMAKE, "--preset", "release", "-B", build, "-DMM_CUDA=OFF", *words], cwd=SOURCE,
                              env={**os.environ, **env}, capture_output=True, text=True, timeout=PATIENCE_S)
        tests = build / "tests" / "CTestTestfile.cmake"
        return done.returncode, " ".join((done.stdout + done.stderr).split()), tests.exists()

    def test_without_cmocka(self):
        env = self.packages_but("cmocka.pc")
        code, said, tests = self.configure(env=env)
        self.assertEqual(code, 0, said)
        self.assertFalse(tests)
        self.assertRegex(said, r"tests are not built: not found: cmocka .*libcmocka-dev.*tools/packages")
        code, said, _ = self.configure("-DMM_TESTS=ON", env=env)
        self.assertNotEqual(code, 0, said)
        self.assertRegex(said, r"MM_TESTS=ON: not found: cmocka .*libcmocka-dev.*tools/packages")

    def test_with_cmocka(self):
        code, said, tests = self.configure(env={})
        self.assertEqual(code, 0, said)
        self.assertTrue(tests, said)


class Packages(unittest.TestCase):
    def setUp(self):
        self.all = {name: shell(f"source tools/lib.sh; packages_of {name}").split() for name in SECTIONS}

    def test_sections(self):
        self.assertIn("liburing-dev", self.all["build"])
        self.assertIn("libcmocka-dev", self.all["tests"])
        self.assertIn("clang-format", self.all["check"])
        said = [name for names in self.all.values() for name in names]
        self.assertEqual(len(said), len(set(said)))
        file = (SOURCE / "tools/packages").read_text()
        self.assertEqual(re.findall(r"^\[(.*)\]$", file, re.M), list(SECTIONS))
        self.assertEqual(re.findall(r"^[^#\[\n].*$", file, re.M), said)

    def test_what_cmake_asks_for_is_there(self):
        """One package for each library that the build refuses to do without."""
        text = (SOURCE / "cmake/mm.cmake").read_text()
        for library in re.findall(r"pkg_check_modules\(\w+ REQUIRED IMPORTED_TARGET (?:lib)?(\w+)", text):
            self.assertIn(f"lib{library}-dev", self.all["build"])

    def test_nobody_has_a_list_of_his_own(self):
        """The guide and the scripts name the file; gpu-suite's list of files to fetch is a part of it."""
        files = shell("git ls-files README.md Documentation tools cmake .ci 2>/dev/null || true").split()
        if not files:
            self.skipTest("no git checkout")
        allowed = {"tools/packages", "tools/lab/suite/deps.py", "cmake/mm.cmake"}
        for name in files:
            text = (SOURCE / name).read_bytes().decode(errors="replace")
            found = set(re.findall(r"lib\w+-dev\b", text))
            if name not in allowed:
                self.assertFalse(found, f"{name} lists packages: {found}")
        fetched = re.findall(r'"(lib\w+-dev)"', (SOURCE / "tools/lab/suite/deps.py").read_text())
        self.assertLessEqual(set(fetched), {*self.all["build"], *self.all["tests"]})
        for guide in ("README.md", "Documentation/admin-guide.md", "Documentation/building.md", "Documentation/testing.md"):
            self.assertTrue("tools/packages" in (SOURCE / guide).read_text(), guide)


class Building(unittest.TestCase):
    """The guide has each option with its default, and each preset with its folder."""

    def setUp(self):
        self.guide = (SOURCE / "Documentation/building.md").read_text()

    def test_options(self):
        files = [SOURCE / "CMakeLists.txt", *SOURCE.glob("cmake/*.cmake"), *SOURCE.glob("tests/**/CMakeLists.txt"),
                 *SOURCE.glob("kernels/**/CMakeLists.txt")]
        text = "\n".join(path.read_text() for path in files)
        there = dict(re.findall(r'^\s*option\((MM_\w+) ".*" (ON|OFF)\)$', text, re.M))
        there |= {name: value.strip('"') or "empty"
                  for name, value in re.findall(r"^set\((MM_\w+) (\S+) CACHE STRING", text, re.M)}
        said = re.findall(r"^\| `(MM_\w+)` \| `?(\w+)`? \|", self.guide, re.M)
        self.assertEqual(dict(said), there)

    def test_presets(self):
        presets = json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]
        there = {p["name"]: p["binaryDir"].rpartition("/")[2] for p in presets if "binaryDir" in p}
        self.assertEqual(dict(re.findall(r"^\| `(\w+)` \| `(build[\w-]*)` \|", self.guide, re.M)), there)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
