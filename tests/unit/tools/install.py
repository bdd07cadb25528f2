#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""install.py CMAKE BUILD LIBDIR SOURCE: installs into a temporary folder, moves that, and runs what is there."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CMAKE, BUILD, LIBDIR, SOURCE = sys.argv[1:5]
PAGE_BYTES = 65536
PATIENCE_S = 300
ENGINE = r"""
#include <mm/client.h>
#include <stdio.h>

int main(void)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .socket_path = "/nonexistent" };
	struct mm_client *client;
	char err[200] = "";
	int r = mm_client_open(&opts, &client, err, sizeof(err));

	puts(err);
	return r < 0 && err[0] ? 0 : 1;
}
"""

# A project of somebody else: an example of ours in C, and the same header in C++.
CONSUMER = """
cmake_minimum_required(VERSION 3.20)
project(consumer C CXX)
find_package(mm-client @VERSION@ CONFIG REQUIRED)
message(STATUS "found ${mm-client_VERSION} in ${mm-client_DIR}")
add_executable(engine tenant.c)
target_compile_definitions(engine PRIVATE _GNU_SOURCE)
add_executable(version version.cpp)
foreach(program engine version)
  target_compile_options(${program} PRIVATE -Wall -Wextra -Werror)
  target_link_libraries(${program} PRIVATE mm::client)
endforeach()
"""
VERSION_CPP = r"""
#include <mm/client.h>
#include <cstdio>

int main()
{
	std::printf("%u.%u %s\n", mm_client_abi() >> 16, mm_client_abi() & 0xffff, mm_client_version());
	return mm_client_abi() == MM_CLIENT_ABI ? 0 : 1;
}
"""


class Install(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="mm-install-")
        self.addCleanup(self.place.cleanup)
        self.root = pathlib.Path(self.place.name)
        self.prefix = self.root / "prefix"
        (self.root / "gpu").mkdir()
        self.env = dict(os.environ, MM_SOFTGPU_DIR=str(self.root / "gpu"),
                        MM_SOFTGPU_GRANULARITY=str(PAGE_BYTES), MM_DRIVER="software",
                        MMD_SOCKET=str(self.root / "mmd" / "tenant.sock"))
        # Neither may lead back to the build.
        for name in ("MM_SOFTGPU_LIB", "LD_LIBRARY_PATH"):
            self.env.pop(name, None)
        # What is run is never where it was put: no path of that time may be in it.
        self.first = self.root / "where-it-was-installed"
        self.run_it(CMAKE, "--install", BUILD, "--prefix", self.first)
        self.first.rename(self.prefix)

    def run_it(self, *words, cwd=None):
        done = subprocess.run([str(w) for w in words], env=self.env, cwd=cwd or self.root,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def program(self, name, *words):
        return self.run_it(self.prefix / "bin" / name, *words)

    def start_mmd(self):
        mmd = subprocess.Popen(
            [self.prefix / "bin" / "mmd", "--dir", self.root / "mmd", "--driver", "software",
             "--pool", str(64 << 20), "--page", str(PAGE_BYTES)],
            env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(mmd.stderr.close)
        self.addCleanup(mmd.wait)
        self.addCleanup(mmd.terminate)
        deadline = time.monotonic() + PATIENCE_S
        for line in mmd.stderr:
            if "event=mmd.ready" in line:
                return
            self.assertLess(time.monotonic(), deadline)
        self.fail(f"mmd ended with {mmd.wait()}")

    def test_serves(self):
        requests = self.root / "requests.jsonl"
        requests.write_text('{"id": "a", "prompt": [1, 2, 3], "max_tokens": 5}\n')
        self.program("mkmodel", "random", "model", "--layers", "2", "--hidden", "64")
        self.start_mmd()
        status = json.loads(self.program("mmctl", "--dir", self.root / "mmd", "--json", "status"))
        self.assertTrue(status["pages_accounted"])
        for fast in ([], ["--fast"]):
            self.program("mmserve", "--model", "model", "--requests", requests, "--output", "out",
                         *fast)
            out = json.loads((self.root / "out").read_text().splitlines()[0])
            self.assertEqual(len(out["ids"]), 5)

    def test_profiles(self):
        case = ["--shapes", "OPT-6.7B:50%", "--policy", "remap", "--rate", "1", "--seconds", "2", "--json"]
        for path in (self.prefix / "share" / "mmd" / "profiles").glob("*.conf"):
            self.program("mmsim", "--profile", path.stem, *case)
        report = json.loads(self.program("mmsim", "--profile", "gh200-96", *case))
        self.assertEqual(report["results"]["remap"]["completed"], report["results"]["remap"]["requests"])

    def test_evaluates(self):
        self.program("mmevaluate", "--quick", "--only", "fig17", "--windows", "1", "--seconds", "1")
        self.assertIn("## Figure 17", (self.root / "evaluation" / "evaluation.md").read_text())

    def consumer_configure(self, prefix, version, good=True):
        """As somebody would who was told the prefix and nothing else. Return: what CMake said."""
        project = self.root / "consumer"
        project.mkdir(exist_ok=True)
        (project / "CMakeLists.txt").write_text(CONSUMER.replace("@VERSION@", version))
        (project / "version.cpp").write_text(VERSION_CPP)
        (project / "tenant.c").write_bytes((pathlib.Path(SOURCE) / "Documentation/examples/tenant.c").read_bytes())
        words = [CMAKE, "-S", project, "-B", project / version, f"-DCMAKE_PREFIX_PATH={prefix}"]
        done = subprocess.run([str(word) for word in words], env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode == 0, good, done.stdout + done.stderr)
        return " ".join((done.stdout + done.stderr).split())

    def serve_consumer(self, engine):
        """Loads a model and runs steps as a tenant of the mmd that was installed."""
        self.program("mkmodel", "random", "model", "--layers", "3", "--hidden", "64")
        self.start_mmd()
        self.assertEqual(self.run_it(engine, "model", "5"), "0 layers were wrong\n")

    def use_cmake_package(self, prefix):
        if os.environ.get("MM_SANITIZE"):
            self.skipTest("the library needs a sanitizer's runtime")
        said = self.consumer_configure(prefix, "0.1")
        self.assertIn(f"in {prefix}/{LIBDIR}/cmake/mm-client", said)
        build = self.root / "consumer" / "0.1"
        self.run_it(CMAKE, "--build", build)
        self.assertRegex(self.run_it(build / "version"), r"^0\.\d+ 0\.\d+\.\d+$")
        self.serve_consumer(build / "engine")

    def test_a_project_finds_the_cmake_package(self):
        self.use_cmake_package(self.prefix)

    def test_other_versions_are_not_found(self):
        if os.environ.get("MM_SANITIZE"):
            self.skipTest("the library needs a sanitizer's runtime")
        for version in ("0.9", "1.0"):
            said = self.consumer_configure(self.prefix, version, good=False)
            self.assertIn("compatible with requested version", said)

    def test_a_project_finds_pkg_config(self):
        if os.environ.get("MM_SANITIZE"):
            self.skipTest("the library needs a sanitizer's runtime")
        self.env["PKG_CONFIG_PATH"] = str(self.prefix / LIBDIR / "pkgconfig")
        flags = self.run_it("pkg-config", "--cflags", "--libs", "mm-client >= 0.1").split()
        source = pathlib.Path(SOURCE) / "Documentation/examples/tenant.c"
        self.run_it("cc", "-D_GNU_SOURCE", "-Wall", "-Werror", source, *flags, "-o", "engine")
        self.env["LD_LIBRARY_PATH"] = str(self.prefix / LIBDIR)
        self.serve_consumer(self.root / "engine")

    def build_an_engine(self, prefix):
        """Without a word about where it is: the .pc file has to know by itself."""
        if os.environ.get("MM_SANITIZE"):
            self.skipTest("the library needs a sanitizer's runtime")
        self.env["PKG_CONFIG_PATH"] = str(prefix / LIBDIR / "pkgconfig")
        flags = self.run_it("pkg-config", "--cflags", "--libs", "mm-client").split()
        (self.root / "engine.c").write_text(ENGINE)
        self.run_it("cc", "-Wall", "-Werror", "engine.c", *flags, "-o", "engine")
        self.env["LD_LIBRARY_PATH"] = str(prefix / LIBDIR)
        self.assertIn("/nonexistent", self.run_it(self.root / "engine"))

    def test_an_engine_is_built(self):
        self.build_an_engine(self.prefix)

    def test_an_engine_is_built_from_a_staged_tree(self):
        """As packages are made: DESTDIR, and the prefix that was configured."""
        self.env["DESTDIR"] = str(self.root / "stage")
        self.run_it(CMAKE, "--install", BUILD)
        del self.env["DESTDIR"]
        found = list((self.root / "stage").rglob("mm-client.pc"))
        self.assertEqual(len(found), 1)
        prefix = found[0].parents[len(pathlib.PurePath(LIBDIR).parts) + 1]
        self.assertTrue((prefix / "bin" / "mmd").is_file())
        self.build_an_engine(prefix)
        self.prefix = prefix
        self.use_cmake_package(prefix)

    def test_no_path_of_then(self):
        """Nothing says where it was built or first installed. Debug information may, and units: systemd wants it."""
        places = [str(self.first).encode(), str(pathlib.Path(BUILD).resolve()).encode()]
        for path in self.prefix.rglob("*"):
            if path.is_symlink() or not path.is_file() or path.suffix == ".service":
                continue
            data = path.read_bytes()
            if data.startswith(b"\x7fELF"):
                self.run_it("strip", "-g", "-o", self.root / "stripped", path)
                data = (self.root / "stripped").read_bytes()
            for place in places:
                self.assertFalse(place in data, f"{path} names {place.decode()}")

    def test_manual(self):
        for page in ("man1/mmctl.1", "man1/mmserve.1", "man1/mmbench.1", "man1/gpubench.1", "man1/mmsim.1",
                     "man1/mkmodel.1", "man1/mmevaluate.1", "man8/mmd.8"):
            path = self.prefix / "share" / "man" / page
            self.assertTrue(path.is_file(), page)
            if shutil.which("man"):
                done = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True,
                                      timeout=PATIENCE_S, env=dict(os.environ, MANPAGER="cat", MANWIDTH="80"))
                self.assertEqual((done.returncode, done.stderr), (0, ""), page)
        page = (self.prefix / "share" / "man" / "man8" / "mmd.8").read_text()
        for words in ("\\-\\-reclaim\\-timeout", "dwell\\-ms", ".SH FILES", ".SH SIGNALS", "@"):
            self.assertEqual(words in page, words != "@", words)

    def test_manual_of_the_library(self):
        """A page for each function that is exported, and an overview that names all."""
        exports = (pathlib.Path(SOURCE) / "libclient/client/exports.map").read_text()
        names = re.findall(r"^\t(mm_\w+);", exports, re.M)
        self.assertGreater(len(names), 50)
        folder = self.prefix / "share" / "man" / "man3"
        self.assertEqual({path.name for path in folder.iterdir()}, {f"{name}.3" for name in [*names, "libmm-client"]})
        whole = (folder / "libmm-client.3").read_text()
        for name in names:
            self.assertIn(f"\\fB{name}\\fR(3)", whole)
            self.assertIn(f"{name}(", (folder / f"{name}.3").read_text().split(".SH SYNOPSIS")[1])

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_nothing_to_say(self):
        pages = sorted((self.prefix / "share" / "man").rglob("*.[1-8]"))
        said = subprocess.run(["mandoc", "-T", "lint", *pages], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False).stdout
        # What programs print is not folded, and what is shown of a header is as wide as that.
        said = [line for line in said.splitlines() if "input text line longer than 80 bytes" not in line]
        self.assertEqual(said, [])

    def offers(self, *words):
        """What bash offers for the last word."""
        script = self.prefix / "share" / "bash-completion" / "completions" / words[0]
        line = " ".join(f"'{word}'" for word in words)
        return self.run_it("bash", "-ec", f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
                           f"_{words[0]}; printf '%s\\n' \"${{COMPREPLY[@]}}\"").split()

    def test_completion(self):
        commands = self.offers("mmctl", "")
        self.assertLessEqual({"status", "plan", "quota", "events", "config", "doctor", "upgrade", "top"}, set(commands))
        self.assertEqual(len(commands), len(set(commands)))  # which they all are, e2e/completion checks
        self.assertEqual(self.offers("mmctl", "quota", ""), ["show", "set"])
        for value in (["plan"], ["=", "plan"]):  # the value of an option is no command
            self.assertEqual(self.offers("mmctl", "--dir", *value, "quota", ""), ["show", "set"])
            self.assertEqual(self.offers("mmctl", "--dir", *value, "dev"), ["devices"])
        self.assertEqual(self.offers("mmctl", "--json", "quota", "set", "x", "--on-timeout", ""),
                         ["kill", "quarantine"])
        self.assertEqual(self.offers("mmctl", "quota", "set", "x", "--on-timeout", "=", "k"), ["kill"])
        self.assertEqual(self.offers("mmctl", "plan", "set", "--la"), ["--layers"])
        self.assertEqual(self.offers("mmctl", "plan", "show", "--la"), [])
        self.assertEqual(self.offers("mmctl", "--dir", ""), [])  # files, by the default of complete
        self.assertEqual(self.offers("mmd", "--driver", ""), ["software", "cuda"])
        self.assertEqual(self.offers("mmd", "--pol"), ["--policy"])
        self.assertEqual(self.offers("mmd", "--policy", "na"), ["naive", "naive-bounded"])
        for program in ("mmserve", "mmbench", "gpubench", "mmsim", "mkmodel", "mmevaluate"):
            self.assertIn("--help", self.offers(program, "--h"), program)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
