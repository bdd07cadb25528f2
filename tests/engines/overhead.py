#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""overhead.py: what mmd costs transformers while it remaps nothing.

usage: MM_CLIENT_LIB=build/lib/libmm-client.so.0 PYTHONPATH=libclient/python
       VENV/bin/python tests/engines/overhead.py [--driver NAME] [--rounds N] [--tokens N]

One random Llama generates the same tokens with plain transformers and on a daemon of its own (on
the software GPU, or with --driver cuda on the first GPU), by turns in one process: N rounds of each
(default 11, at least 9). The last line has the medians, their ratio, and the lowest and highest
ratio of a pair of neighbours. It is a measurement, not a test: nothing fails on time.

Status: 0 measured; 1 the tokens differ; 2 usage.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import transformers

import mmd
import mmd.hf
from mmd.hf import demo

SHARE = 4  # the pool, in sizes of the model: mmd has no reason to take a layer


def seconds(module, prompt, tokens):
    """The time of one answer, and the answer."""
    begin = time.perf_counter()
    with torch.no_grad():
        out = module.generate(prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=0,
                              eos_token_id=None)
    return time.perf_counter() - begin, out[0].tolist()


def compare(plain, module, prompt, args):
    """Times of both, by turns, each first as often as second; None: the tokens differ."""
    times = ([], [])
    for number in range(-1, args.rounds):
        answers = {}
        for which in (0, 1) if number % 2 else (1, 0):
            took, answers[which] = seconds((plain, module)[which], prompt, args.tokens)
            if number >= 0:
                times[which].append(took)
        if answers[0] != answers[1]:
            return None
    return times


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--driver", choices=tuple(demo.PAGES), default="software")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()
    if args.rounds < 9 or not 1 <= args.tokens <= 1024:
        parser.error("--rounds: 9 or more; --tokens: 1 to 1024")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    args.hidden, args.layers = demo.HIDDEN[args.driver], 12
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        size = demo.make_model(folder / "model", args, 0)
        where = demo.device(args)
        plain = transformers.AutoModelForCausalLM.from_pretrained(folder / "model").eval().to(where)
        prompt = torch.arange(1, 25).view(1, 24).to(where)
        with demo.daemon(folder, size * SHARE, args.driver) as socket:
            with mmd.Client("overhead", socket) as client:
                module = mmd.hf.load(folder / "model", client, max_tokens=2 * (24 + args.tokens))
                times = compare(plain, module, prompt, args)
                remapped = client.info.layers_remapped
                mmd.hf.unload(module)
    if times is None:
        print("the tokens differ")
        return 1
    medians = [statistics.median(one) for one in times]
    ratios = sorted(with_mmd / without for without, with_mmd in zip(*times))
    print(f"{args.rounds} rounds of {args.tokens} tokens, layers away at the end: {remapped}")
    print(f"without {medians[0]:.3f} s, with {medians[1]:.3f} s, ratio of the medians "
          f"{medians[1] / medians[0]:.3f}, of pairs {ratios[0]:.3f} to {ratios[-1]:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
