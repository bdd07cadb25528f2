#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""packages.py CPACK CMAKE BUILD: makes the packages, and looks at what is in them and what they say of themselves."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CPACK, CMAKE, BUILD = sys.argv[1:4]
PATIENCE_S = 300
NAMES = {"mmd", "libmm-client0", "libmm-client-dev", "mmd-tools", "mm-softgpu"}
EXACTLY_ONE = {  # file: its package
    "bin/mmd": "mmd", "bin/mmctl": "mmd", "share/man/man8/mmd.8": "mmd", "bin/mmserve": "mmd-tools",
    "bin/mkmodel": "mmd-tools", "include/mm/client.h": "libmm-client-dev", "bin/softgpu-run": "mm-softgpu",
}


def run_it(*argv, **more):
    """Runs a program that must succeed, and returns what it printed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, **more)
    if done.returncode:
        raise AssertionError(f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "dpkg-shlibdeps (dpkg-dev) is not installed")
class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="mm-packages-")
        cls.root = pathlib.Path(cls.folder.name)
        cls.said = run_it(CPACK, "-G", "DEB", "-B", cls.root, "-D", "CPACK_PACKAGE_DIRECTORY=" + cls.folder.name,
                          "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=BUILD)
        cls.packages = {re.split("_", path.name)[0]: path for path in cls.root.glob("*.deb")}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def contents(self, name):
        """The files of a package, below its prefix."""
        lines = run_it("dpkg-deb", "-c", self.packages[name]).splitlines()
        return {line.split(" -> ")[0].split(" ./", 1)[1].removeprefix("usr/") for line in lines if line[0] != "d"}

    def test_there_are_those_that_we_promise(self):
        self.assertLessEqual(NAMES, set(self.packages))
        self.assertNotIn("Warning", self.said)

    def test_each_file_is_in_one_package(self):
        owner = {}
        for name in self.packages:
            for path in self.contents(name):
                self.assertNotIn(path, owner, f"in {name} and {owner.get(path)}")
                owner[path] = name
        for path, name in EXACTLY_ONE.items():
            self.assertEqual(owner.get(path), name, path)
        self.assertEqual([owner[path] for path in owner if path.endswith("libmm-client.so.0")], ["libmm-client0"])
        self.assertEqual([owner[path] for path in owner if path.endswith("mm-softgpu/libcuda.so.1")], ["mm-softgpu"])

    def test_all_that_is_installed_is_in_a_package(self):
        stage = self.root / "stage"
        run_it(CMAKE, "--install", BUILD, env=dict(os.environ, DESTDIR=str(stage)))
        installed = {path.name for path in stage.rglob("*") if not path.is_dir()}
        packaged = {pathlib.PurePath(path).name for name in self.packages for path in self.contents(name)}
        self.assertEqual(installed - packaged, set())

    def test_what_they_need(self):
        for name, needs in (("mmd", ("libc6", "libjansson4", "liburing2", "libseccomp2", "mm-softgpu")),
                            ("libmm-client0", ("libc6",)), ("libmm-client-dev", ("libmm-client0 (=",)),
                            ("mmd-tools", ("libopenblas0", "mm-softgpu"))):
            depends = run_it("dpkg-deb", "-f", self.packages[name], "Depends")
            for need in needs:
                self.assertIn(need, depends, name)
        self.assertNotIn("mmd", run_it("dpkg-deb", "-f", self.packages["mm-softgpu"], "Depends"))

    def test_scripts_are_shell(self):
        for name, scripts in (("mmd", {"postinst", "prerm", "postrm"}), ("libmm-client0", {"shlibs", "triggers"})):
            control = self.root / ("control-" + name)
            run_it("dpkg-deb", "-e", self.packages[name], control)
            self.assertLessEqual(scripts, {path.name for path in control.iterdir()})
            for path in control.iterdir():
                if path.name in ("postinst", "prerm", "postrm"):
                    run_it("sh", "-n", path)

    def test_softgpu_works_without_the_others(self):
        """The example that it brings, compiled and run on what is in that package alone."""
        if os.environ.get("MM_SANITIZE"):
            self.skipTest("the library needs a sanitizer's runtime")
        root = self.root / "softgpu"
        run_it("dpkg-deb", "-x", self.packages["mm-softgpu"], root)
        source = root / "usr/share/doc/mm-softgpu/examples/vmm.c"
        run_it("cc", "-D_GNU_SOURCE", "-Wall", "-Werror", source, "-o", self.root / "vmm")
        run = str(root / "usr/bin/softgpu-run")
        self.assertIn("32 handles of 2097152 bytes", run_it(run, "--memory", "64M", self.root / "vmm"))
        self.assertIn("2 handles", run_it(run, "--fail=cuMemCreate:3:2", "--", self.root / "vmm"))
        for argv, status in ((["sh", "-c", "exit 7"], 7), (["--memory", "64M"], 2), (["--bad", "true"], 2),
                             (["--help"], 0), (["sh", "-c", "kill -TERM $$"], -15)):
            self.assertEqual(subprocess.run([run, *argv], capture_output=True, timeout=PATIENCE_S,
                                            check=False).returncode, status, argv)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
