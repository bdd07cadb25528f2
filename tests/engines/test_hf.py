# SPDX-License-Identifier: Apache-2.0
"""transformers on memory that mmd lends; run by in_venv.py."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import transformers

import mmd
import mmd.hf
from conftest import PACKAGE
from daemon import descendants, role_of
from programs import limit, wait_until

GREEDY = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
PROMPTS = torch.arange(1, 25).view(2, 12)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


@pytest.fixture
def pair(daemon, connect, model_dirs):
    """pair(...) -> daemon, client, plain model, the same on mmd; unloaded when the test is over."""
    made = []

    def loader(max_tokens=1024, **options):
        d = daemon(**options)
        client = connect(d)
        made.append(mmd.hf.load(model_dirs[0], client, max_tokens=max_tokens))
        plain = transformers.AutoModelForCausalLM.from_pretrained(model_dirs[0], dtype="auto").eval()
        return d, client, plain, made[-1]

    yield loader
    for module in made:
        mmd.hf.unload(module)
    gc.collect()


def generate(module, prompts=PROMPTS, tokens=50, **options):
    return module.generate(prompts, max_new_tokens=tokens, **GREEDY, **options)


class Gated:
    """Counts the steps in which layers were away."""

    def __init__(self, module):
        self.steps = self.gated = 0
        self._module, self._forward = module, module.forward
        module.forward = self
        self.__signature__ = self._forward.__signature__

    def __call__(self, *args, **kwargs):
        result = self._forward(*args, **kwargs)
        self.steps += 1
        self.gated += mmd.hf.step_of(self._module).info.gated > 0
        return result


def test_generate_while_plans_change(pair):
    """Token by token what plain transformers generates, however many layers are away."""
    d, client, plain, module = pair()
    want, count, plans = generate(plain), Gated(module), 0
    deadline, stop = time.monotonic() + limit(120), threading.Event()

    def change():
        nonlocal plans
        while not stop.is_set():
            d.ctl("plan", "set", "engine", "--layers", (0, 3, 7, 5, 2)[plans % 5], check=False)
            plans += 1

    changer = threading.Thread(target=change)
    changer.start()
    try:
        while count.gated < 100 or client.info.plan_changes < 10:
            assert time.monotonic() < deadline, (count.gated, client.info.plan_changes)
            assert torch.equal(generate(module), want)
    finally:
        stop.set()
        changer.join()
    print(f"hf: {count.steps} steps identical, {count.gated} gated, "
          f"{client.info.plan_changes} plan changes")


def test_long(pair, capsys):
    """450 tokens and more, while the plan changes all the time: each is that of plain transformers."""
    d, client, plain, module = pair()
    prompts, tokens, plans = PROMPTS[:1], 150, 0
    want, count = generate(plain, prompts, tokens), Gated(module)
    deadline, stop = time.monotonic() + limit(300), threading.Event()

    def change():
        nonlocal plans
        while not stop.is_set():
            d.ctl("plan", "set", "engine", "--layers", (0, 3, 7, 5, 2)[plans % 5], check=False)
            plans += 1
            stop.wait(0.1)

    changer = threading.Thread(target=change)
    changer.start()
    identical = 0
    try:
        while identical < 450 or count.gated < 200 or client.info.plan_changes < 20:
            assert time.monotonic() < deadline, (identical, count.gated, client.info.plan_changes)
            assert torch.equal(generate(module, prompts, tokens), want)
            identical += tokens
    finally:
        stop.set()
        changer.join()
    changes = client.info.plan_changes
    with capsys.disabled():
        print(f"\nhf: {identical} tokens identical, gated steps {count.gated}, "
              f"plan changes {changes}")
    assert identical >= 450 and count.gated >= 200 and changes >= 20


def test_beams_and_other_caches(pair):
    """The arena's cache is reordered, cropped and repeated like others; others work, too."""
    _, _, plain, module = pair()
    assert torch.equal(generate(module, num_beams=3), generate(plain, num_beams=3))
    want = generate(plain)
    cache = transformers.DynamicCache()
    assert torch.equal(generate(module, past_key_values=cache), want)
    assert torch.equal(generate(module, use_cache=False, tokens=5), want[:, :17])
    cache = mmd.hf.ArenaCache(module._mmd.blocks)
    assert torch.equal(generate(module, past_key_values=cache), want)
    assert cache.get_seq_length() == want.shape[1] - 1
    # What transformers makes of a cropped cache differs between its releases.
    other = transformers.DynamicCache()
    generate(plain, past_key_values=other)
    for one in (cache, other):
        one.crop(-10)
    assert torch.equal(generate(module, want[:, :-5], tokens=5, past_key_values=cache),
                       generate(plain, want[:, :-5], tokens=5, past_key_values=other))


def test_blocks_come_and_go(pair):
    """What another cache holds is kept in host memory while it is needed, and comes back."""
    _, client, plain, module = pair(max_tokens=192)
    blocks = module._mmd.blocks
    want = generate(plain)
    first = mmd.hf.ArenaCache(blocks)
    half = generate(module, tokens=20, past_key_values=first)
    assert torch.equal(half, want[:, :32])
    held = len([block for block in first.blocks() if block.chunk is not None])
    long = generate(module, PROMPTS.flip(0), tokens=80)
    assert torch.equal(long, generate(plain, PROMPTS.flip(0), tokens=80))
    assert blocks.spilled > 0 and held > 0, "the arena was large enough for both"
    assert torch.equal(generate(module, half, tokens=30, past_key_values=first), want)
    del first
    gc.collect()
    blocks.give_back()
    assert blocks.arena.usable_count == 0 and client.info.tenant_id >= 0


def test_what_does_not_fit_is_refused(pair):
    _, _, plain, module = pair(max_tokens=32)
    with pytest.raises(mmd.Error) as caught:
        generate(module)
    assert "max_tokens" in caught.value.strerror
    prompt = PROMPTS[:1, :4]
    assert torch.equal(generate(module, prompt, tokens=4), generate(plain, prompt, tokens=4))


def test_exception_in_a_layer(pair):
    """The step is abandoned; the same cache goes on where it was."""
    d, client, plain, module = pair()
    d.ctl("plan", "set", "engine", "--layers", 4)
    wait_until(lambda: client.info.layers_cycling > 0, 60, "layers to cycle")
    want = generate(plain)
    cache = mmd.hf.ArenaCache(module._mmd.blocks)
    half = generate(module, tokens=20, past_key_values=cache)
    bad = module.model.layers[4].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(module, half, tokens=30, past_key_values=cache)
    bad.remove()
    assert cache.get_seq_length() == 31
    assert torch.equal(generate(module, half, tokens=30, past_key_values=cache), want)


def test_void_step(pair):
    """A step that another thread's broken one made void is repeated, and writes the same places."""
    d, client, plain, module = pair()
    d.ctl("plan", "set", "engine", "--layers", 4)
    wait_until(lambda: client.info.layers_cycling > 0, 60, "layers to cycle")
    want, todo = generate(plain), [3]

    def break_off():
        with pytest.raises(ZeroDivisionError), mmd.Step(client):
            raise ZeroDivisionError

    def hook(*_):
        if todo and mmd.hf.step_of(module).info:
            todo.pop()
            thread = threading.Thread(target=break_off)
            thread.start()
            thread.join()

    handle = module.model.layers[6].register_forward_pre_hook(hook)
    assert torch.equal(generate(module), want)
    handle.remove()
    assert mmd.hf.step_of(module).voids > 0


def test_demo_without_xfer():
    """xfer, which moves the layers, is killed in the middle: another takes over, no token changes."""
    env = dict(os.environ, PYTHONPATH=str(PACKAGE))
    with subprocess.Popen([sys.executable, "-m", "mmd.hf.demo", "--tokens", "64", "--rounds", "4"],
                          env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as demo:
        timer = threading.Timer(limit(300), demo.kill)
        timer.start()
        lines, killed = [], 0
        try:
            for line in demo.stdout:
                lines.append(line)
                if killed < 2 and "layers away" in line and " 0.0 tokens/s" not in line:
                    for pid in descendants(demo.pid):
                        if role_of(pid) == "xfer":
                            os.kill(pid, signal.SIGKILL)
                            killed += 1
        finally:
            timer.cancel()
    text = "".join(lines)
    assert killed, text
    assert demo.returncode == 0 and lines[-1] == "identical: True\n", text


def test_demo():
    """Two models on what is too small for both."""
    env = dict(os.environ, PYTHONPATH=str(PACKAGE))
    done = subprocess.run([sys.executable, "-m", "mmd.hf.demo", "--tokens", "16",
                           "--rounds", "2"], env=env, text=True, capture_output=True,
                          timeout=limit(300), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "identical: True", done.stdout
    assert "layers away" in done.stdout and "tokens/s" in done.stdout
    for words in (["--tokens", "0"], ["--hidden", "65"], ["--nothing"]):
        done = subprocess.run([sys.executable, "-m", "mmd.hf.demo", *words], env=env,
                              capture_output=True, timeout=limit(60), check=False)
        assert done.returncode == 2


def test_sleep_and_wake(pair):
    """A module sleeps with a cache half-way, its pages are free, and it goes on where it was."""
    d, client, plain, module = pair()
    want = generate(plain)
    cache = mmd.hf.ArenaCache(module._mmd.blocks)
    first = module.generate(PROMPTS, max_new_tokens=20, past_key_values=cache, **GREEDY)
    mmd.hf.sleep(module)
    wait_until(lambda: d.free_pages() == d.pool_pages(), 20, "all pages")
    assert client.model is None and not d.status()["stores"]
    with pytest.raises(mmd.Error, match="sleeps"):
        generate(module)
    mmd.hf.wake(module)
    rest = module.generate(first, max_new_tokens=30, past_key_values=cache, **GREEDY)
    assert torch.equal(rest, want)
    count, deadline, plans = Gated(module), time.monotonic() + limit(120), 0
    while count.gated < 20:
        assert time.monotonic() < deadline, "no layers cycle"
        d.ctl("plan", "set", "engine", "--layers", (0, 3, 7, 5, 2)[plans % 5], check=False)
        plans += 1
        assert torch.equal(generate(module), want)


def test_update(pair):
    """Tokens change as those of plain transformers with the same change."""
    d, _, plain, module = pair()
    before = generate(plain)
    changes = {}
    with torch.no_grad():
        for name, weight in plain.named_parameters():
            if "down_proj" in name or "q_proj" in name:
                weight.mul_(-1.5)
                changes[name] = weight
    want = generate(plain)
    assert not torch.equal(before, want), "the change says little"
    mmd.torch.update(module, module._mmd.model, changes)
    count, deadline, plans = Gated(module), time.monotonic() + limit(120), 0
    while count.gated < 50:
        assert time.monotonic() < deadline, "no layers cycle"
        d.ctl("plan", "set", "engine", "--layers", (0, 3, 7, 5, 2)[plans % 5], check=False)
        plans += 1
        assert torch.equal(generate(module), want)
