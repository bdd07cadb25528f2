#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_engine.py JSON: an engine of vLLM in a process of its own; its last line of output is JSON.

It knows nothing of the package mmd but the name of the load format: the entry point does the rest.
"""

import json
import sys
import time


def statistics(worker):
    """Called in the process of the worker."""
    del worker
    import dataclasses

    import mmd.vllm

    return dataclasses.asdict(mmd.vllm.stats())


def break_steps(worker):
    """Has a thread break a step off in the midst of one of the engine's, which is void then, until one was."""
    import threading

    import mmd
    from mmd._plugin import commit
    from mmd.vllm import _engine

    engine = _engine.current()
    _, layers = commit.stack(worker.get_model(), engine.model.info.n_layers)

    def break_off():
        try:
            with mmd.Step(engine.client):
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    def hook(*_):
        if engine.step.voids == 0 and engine.client.info.layers_cycling and engine.stats.steps % 8 == 5:
            thread = threading.Thread(target=break_off)
            thread.start()
            thread.join(0.5)  # its step waits for this one's end if a plan change is in progress

    layers[6].register_forward_pre_hook(hook)


def nap(worker):
    """Sleeps and wakes up, as the worker does it with --sleep-mode-backend mmd; what it had meanwhile."""
    del worker
    import mmd.vllm
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    backend = SleepModeBackendFactory.get_backend_class("mmd")()
    backend.suspend(1)
    slept = [backend.state(), mmd.vllm.stats().chunks]
    backend.resume()
    return [*slept, backend.state()]


def prompts(job):
    return [{"prompt_token_ids": [(one * 37 + at * 11) % 250 + 3 for at in range(24 + one)]}
            for one in range(job["requests"])]


def multiply_by_torch():
    """
    The product of matrices that the plugin has on CPUs, for an engine without it: vLLM's own rounds otherwise, and
    where two tokens are as good as equal another one comes out.
    """
    import torch
    from vllm.model_executor.layers import utils

    def dispatch(layer, remove_weight):
        del remove_weight
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch


def main():
    job = json.loads(sys.argv[1])
    if job.get("torch_gemm"):
        multiply_by_torch()
    from vllm import LLM, SamplingParams

    engine = LLM(model=job["model"], skip_tokenizer_init=True, dtype="float32", block_size=32,
                 max_model_len=512, kv_cache_memory_bytes=job.get("kv_bytes", 48 << 20),
                 disable_log_stats=True, **{"enforce_eager": True, **job.get("options", {})})
    print("ready", flush=True)
    if job.get("wait"):
        sys.stdin.readline()
    if job.get("break_steps"):
        engine.collective_rpc(break_steps)
    sampling = SamplingParams(temperature=0, max_tokens=job["tokens"], ignore_eos=True,
                              detokenize=False)
    rounds, stats, naps, begin = [], {}, [], time.monotonic()
    for _ in range(job.get("rounds", 1)):
        done = engine.generate(prompts(job), sampling, use_tqdm=False)
        rounds.append([list(one.outputs[0].token_ids) for one in done])
        if job.get("nap"):
            naps += engine.collective_rpc(nap)
        if "until" in job:
            (stats,) = engine.collective_rpc(statistics)
            if all(stats[name] >= least for name, least in job["until"].items()):
                break
    print(json.dumps({"ids": rounds, "seconds": time.monotonic() - begin, "stats": stats,
                      "naps": naps}), flush=True)


if __name__ == "__main__":
    main()
