#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""mmtrace.py PROGRAM: small traces in each format, and what is wrong with others."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
120,GPT-4,417,276,693,API log
"""
MOONCAKE = """{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46]}
"""
BAILIAN = """{"chat_id": 159, "timestamp": 61.114, "input_length": 521, "output_length": 132, "type": "text"}
{"chat_id": 160, "timestamp": 60.5, "input_length": 12, "output_length": 1, "type": "text"}
"""
HEAD = "arrival_s,prompt_tokens,output_tokens\n"


class Mmtrace(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-trace-")
        self.addCleanup(place.cleanup)
        self.path = pathlib.Path(place.name) / "trace"

    def convert(self, form, text, *options):
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return subprocess.run([sys.executable, PROGRAM, form, self.path, *options], capture_output=True, text=True,
                              timeout=120, check=False)

    def test_formats(self):
        for form, text, rows in (
                ("azure", AZURE, "0.000000,4808,10\n0.052000,3180,8\n0.098189,110,27\n"),
                ("azure", AZURE_2024, "0.000000,2162,5\n0.990070,2399,6\n"),
                ("burstgpt", BURSTGPT, "0.000000,472,18\n40.000000,1087,230\n115.000000,417,276\n"),
                ("mooncake", MOONCAKE, "0.000000,6955,52\n3.053000,6472,26\n"),
                ("bailian", BAILIAN, "0.000000,12,1\n0.614000,521,132\n"),
                ("mmd", HEAD + "1,2,3\n", "0.000000,2,3\n")):
            done = self.convert(form, text)
            self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", HEAD + rows), form)

    def test_parts(self):
        done = self.convert("burstgpt", BURSTGPT, "--skip", "40", "--speed", "2", "--prompt-max", "500", "--output-max",
                            "100", "--json")
        self.assertEqual(done.stdout, HEAD + "0.000000,500,100\n37.500000,417,100\n")
        self.assertEqual(json.loads(done.stderr), {"schema": 1, "requests": 2, "left_out_empty": 1, "seconds": 37.5,
                                                   "prompt_tokens": 917, "output_tokens": 200})
        self.assertEqual(self.convert("azure", AZURE, "--limit", "1").stdout, HEAD + "0.000000,4808,10\n")
        self.assertEqual(self.convert("azure", AZURE, "--seconds", "0.06").stdout.count("\n"), 3)

    def test_what_is_wrong_is_said(self):
        for form, text, says in (("azure", BURSTGPT, ":2 or the line behind it: no TIMESTAMP"),
                                 ("azure", AZURE.replace("3180", "-1"), "ContextTokens is '-1'"),
                                 ("azure", AZURE.replace("3180", "1e300"), "ContextTokens is '1e300'"),
                                 ("azure", AZURE.replace("2023-11-16 18:17:04.0781490", "yesterday"), "yesterday"),
                                 ("azure", AZURE.replace("2023-11-16 18:17:03.9799600", "nan"), "not a time"),
                                 ("mooncake", MOONCAKE + "{", ":2 or the line behind it"),
                                 ("mooncake", "[1]\n", "not an object"), ("mooncake", b"\xff\xfe", "utf-8"),
                                 ("azure", "", "no request in it"), ("azure", b"TIMESTAMP\0,\n\0\n", "")):
            done = self.convert(form, text)
            self.assertEqual((done.returncode, done.stdout), (1, ""), says)
            self.assertIn(says, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_usage(self):
        for options, code in ((["--help"], 0), (["--version"], 0), (["--limit", "0"], 2), (["--speed", "nan"], 2)):
            self.assertEqual(self.convert("azure", AZURE, *options).returncode, code, options)
        done = subprocess.run([sys.executable, PROGRAM, "azure", "/nonexistent"], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
