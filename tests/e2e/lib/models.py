# SPDX-License-Identifier: Apache-2.0
"""Models to serve, made by mkmodel."""

import pathlib
import subprocess

from programs import BIN, limit

VOCAB = 256


def random_model(path, seed, hidden=64, layers=8, heads=4, kv_heads=2, ffn=172, dtype="f16",
                 max_position=512):
    """Small, but of pages enough: a layer is about 90 KiB in f16."""
    args = {"hidden": hidden, "layers": layers, "heads": heads, "kv-heads": kv_heads, "ffn": ffn,
            "vocab": VOCAB, "max-position": max_position, "dtype": dtype, "seed": seed}
    flags = [text for name, value in args.items() for text in (f"--{name}", str(value))]
    subprocess.run([str(BIN / "mkmodel"), "random", str(path), *flags, "--tied"], check=True,
                   capture_output=True, timeout=limit(60))
    return pathlib.Path(path)


def model(path, seed, *options):
    """Like random_model, of any kind: options of mkmodel replace these."""
    sizes = ["--hidden", 64, "--layers", 8, "--heads", 4, "--kv-heads", 2, "--ffn", 172, "--vocab", VOCAB,
             "--max-position", 512, "--seed", seed]
    subprocess.run([str(BIN / "mkmodel"), "random", str(path), *map(str, sizes), *map(str, options)],
                   check=True, capture_output=True, timeout=limit(60))
    return pathlib.Path(path)


def stories_model(path, data):
    subprocess.run([str(BIN / "mkmodel"), "llama2c", str(pathlib.Path(data) / "stories260K.bin"),
                    str(path)], check=True, capture_output=True, timeout=limit(60))
    return pathlib.Path(path)
