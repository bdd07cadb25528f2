# SPDX-License-Identifier: Apache-2.0
"""Two models of transformers share memory of a GPU that is too small for both.

usage: python -m mmd.hf.demo [--driver NAME] [--tokens N] [--rounds N] [--layers N] [--hidden N]
                             [--share PERCENT]

It makes two small random models, starts an mmd of its own, and has both generate at the same time,
while mmd takes layers of both for what is needed now. Each line says how many layers of each are
away, and how many tokens a second there are. The last line says whether every token is the same as
with plain transformers. mmd is that of the PATH, or of the build that MM_CLIENT_LIB points into.

  --driver NAME    software (default), which needs no GPU; cuda: the first GPU, of which mmd takes
                   the pool alone
  --tokens N       tokens of each answer (default 32)
  --rounds N       answers of each model (default 3)
  --layers N       layers of each model (default 12)
  --hidden N       width of each model, a multiple of 64 (default 256; with cuda 1024)
  --share PERCENT  the pool, as a part of what both models take (default 75)

Status: 0 all tokens are the same; 1 they are not, or mmd does not run; 2 usage.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import torch
import transformers

import mmd
import mmd.hf

NAMES: Final = ("left", "right")
PAGES: Final = {"software": 16384, "cuda": 2 << 20}
HIDDEN: Final = {"software": 256, "cuda": 1024}
PROMPT_TOKENS: Final = 24
LOOK_S: Final = 0.5


def program(name: str) -> str:
    """The path of one of mmd's programs."""
    found = shutil.which(name)
    library = os.environ.get("MM_CLIENT_LIB")
    if found is None and library:
        beside = pathlib.Path(library).resolve().parent.parent / "bin" / name
        found = str(beside) if beside.exists() else None
    if found is None:
        raise FileNotFoundError(f"{name} is not in the PATH, and not in the build that "
                                f"MM_CLIENT_LIB points into")
    return found


def make_model(folder: pathlib.Path, args: argparse.Namespace, seed: int) -> int:
    """Writes a random Llama; returns the bytes of its weights."""
    torch.manual_seed(seed)
    heads = max(1, args.hidden // 64)
    config = transformers.LlamaConfig(
        hidden_size=args.hidden, intermediate_size=args.hidden * 3, num_hidden_layers=args.layers,
        num_attention_heads=heads, num_key_value_heads=heads, vocab_size=512,
        max_position_embeddings=2048, tie_word_embeddings=True, initializer_range=0.2)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    return sum(value.numel() * value.element_size() for value in model.parameters())


@contextlib.contextmanager
def daemon(folder: pathlib.Path, pool_bytes: int,
           driver: str = "software") -> Iterator[pathlib.Path]:
    """An mmd on a GPU, or on a software GPU of its own; its tenants' socket."""
    memory = tempfile.mkdtemp(prefix="mmd-demo.", dir="/dev/shm")
    if driver == "software":
        os.environ.update(MM_SOFTGPU_DIR=memory, MM_SOFTGPU_GRANULARITY="4096",
                          MM_SOFTGPU_MEMORY=str(pool_bytes * 2))
    place, page = folder / "run", PAGES[driver]
    with open(folder / "mmd.log", "wb") as log:
        process = subprocess.Popen(
            [program("mmd"), "--dir", str(place), "--driver", driver, "--pool",
             str(pool_bytes // page * page), "--page", str(page), "--policy", "remap"],
            stdout=log, stderr=log)
    try:
        subprocess.run([program("mmctl"), "--dir", str(place), "wait"], check=True,
                       stdout=subprocess.DEVNULL)
        yield place / "tenant.sock"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(memory)


class Counter:
    """Counts new tokens as generate() has them."""

    def __init__(self) -> None:
        self.tokens = 0
        self._had_prompt = False

    def put(self, value: Any) -> None:
        """Called with the prompt, and then with new tokens."""
        self.tokens += int(value.numel()) if self._had_prompt else 0
        self._had_prompt = True

    def end(self) -> None:
        """Called after the last token."""
        self._had_prompt = False


def device(args: argparse.Namespace) -> str:
    """The device on which PyTorch computes."""
    return "cpu" if args.driver == "software" else "cuda:0"


def own_stream(args: argparse.Namespace) -> Any:
    """A stream for this thread. In one stream a model's gates would also hold up the other's."""
    if args.driver == "software":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.Stream())


def prompts(args: argparse.Namespace, seed: int) -> list[Any]:
    """The questions of one model."""
    source = torch.Generator().manual_seed(seed)
    return [torch.randint(1, 512, (1, PROMPT_TOKENS), generator=source).to(device(args))
            for _ in range(args.rounds)]


def answers(module: Any, questions: list[Any], args: argparse.Namespace,
            counter: Counter | None = None) -> list[list[int]]:
    """What a model generates, greedily."""
    found = []
    for question in questions:
        with torch.no_grad():
            out = module.generate(question, max_new_tokens=args.tokens, do_sample=False,
                                  pad_token_id=0, eos_token_id=None, streamer=counter)
        found.append(out[0].tolist())
    return found


class Tenant(threading.Thread):
    """A model on mmd in a thread of its own."""

    def __init__(self, name: str, folder: pathlib.Path, socket: pathlib.Path, seed: int,
                 args: argparse.Namespace) -> None:
        super().__init__(name=name)
        self.client = mmd.Client(name, socket)
        limit = (PROMPT_TOKENS + args.tokens) * 2
        self.module = mmd.hf.load(folder, self.client, max_tokens=limit)
        self.counter = Counter()
        self.answers: list[list[int]] = []
        self.error: BaseException | None = None
        self._questions, self._args = prompts(args, seed), args

    def run(self) -> None:
        """Generates; the thread's body."""
        try:
            with own_stream(self._args):
                self.answers = answers(self.module, self._questions, self._args, self.counter)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self.error = error

    def line(self) -> str:
        """How it goes."""
        info = self.client.info
        return f"{self.name}: {info.layers_remapped:2} of {self._args.layers} layers away"

    def close(self) -> None:
        """Gives all memory back."""
        mmd.hf.unload(self.module)
        self.client.close()


def watch(tenants: list[Tenant]) -> int:
    """Prints a line from time to time until all have ended; the most layers that were away."""
    most, before, then = 0, 0, time.monotonic()
    while any(tenant.is_alive() for tenant in tenants):
        for tenant in tenants:
            tenant.join(LOOK_S / len(tenants))
        most = max(most, *(tenant.client.info.layers_remapped for tenant in tenants))
        tokens, now = sum(tenant.counter.tokens for tenant in tenants), time.monotonic()
        speed = (tokens - before) / (now - then)
        before, then = tokens, now
        print(", ".join(tenant.line() for tenant in tenants) + f"; {speed:6.1f} tokens/s",
              flush=True)
    return most


def demonstrate(folder: pathlib.Path, args: argparse.Namespace) -> bool:
    """Whether all tokens are the same."""
    folders = [folder / name for name in NAMES]
    sizes = [make_model(path, args, seed) for seed, path in enumerate(folders)]
    expected = []
    for seed, path in enumerate(folders):
        plain = transformers.AutoModelForCausalLM.from_pretrained(path).eval().to(device(args))
        expected.append(answers(plain, prompts(args, seed), args))
        del plain
    pool = sum(sizes) * args.share // 100
    print(f"two models of {sizes[0] >> 20} MiB on a pool of {pool >> 20} MiB", flush=True)
    with daemon(folder, pool, args.driver) as socket:
        tenants: list[Tenant] = []
        try:
            for seed, (name, path) in enumerate(zip(NAMES, folders)):
                tenants.append(Tenant(name, path, socket, seed, args))
            for tenant in tenants:
                tenant.start()
            most = watch(tenants)
        finally:
            for tenant in tenants:
                if tenant.is_alive():
                    tenant.join()
                tenant.close()
        for tenant in tenants:
            if tenant.error is not None:
                raise tenant.error
    print(f"most layers away: {most}")
    return [tenant.answers for tenant in tenants] == expected


def arguments(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(usage=__doc__, add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--driver", choices=tuple(PAGES), default="software")
    for name, default, low, high in (("tokens", 32, 1, 1024), ("rounds", 3, 1, 1000),
                                     ("layers", 12, 2, 100), ("hidden", 0, 64, 4096),
                                     ("share", 75, 10, 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
        parser.set_defaults(**{f"{name}_range": (low, high)})
    args = parser.parse_args(words)
    args.hidden = args.hidden or HIDDEN[args.driver]
    for name in ("tokens", "rounds", "layers", "hidden", "share"):
        low, high = getattr(args, f"{name}_range")
        if not low <= getattr(args, name) <= high:
            parser.error(f"--{name}: {low} to {high}, not {getattr(args, name)}")
    if args.hidden % 64:
        parser.error(f"--hidden: a multiple of 64, not {args.hidden}")
    return args


def main(words: list[str] | None = None) -> int:
    """Runs the demonstration; the program's status."""
    args = arguments(words)
    if args.help:
        print(__doc__, end="")
        return 0
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="mmd-demo.") as folder:
        try:
            same = demonstrate(pathlib.Path(folder), args)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
    print(f"identical: {same}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
