#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sglang_engine.py JSON: an engine of SGLang; its last line of output is JSON.

It knows nothing of the package mmd but the name of the load format: the entry point does the rest.
The scheduler is a process of SGLang's own.
"""

import json
import sys
import time

from sglang.srt.entrypoints.engine import Engine
from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput


def prompts(job):
    return [[(one * 37 + at * 11) % 250 + 3 for at in range(24 + one)]
            for one in range(job["requests"])]


def statistics(engine):
    """Those of the plugin, by the way that SGLang's servers have; None: it has no part in this."""
    return engine.get_server_info()["internal_states"][0].get("mmd")


def nap(engine):
    """Sleeps and wakes up, paused as by a server: the chunks that it had before, and asleep."""
    def control(call, request):
        engine.loop.run_until_complete(call(request))

    manager = engine.tokenizer_manager
    chunks = [statistics(engine)["chunks"]]
    control(manager.pause_generation, PauseGenerationReqInput(mode="retract"))
    engine.release_memory_occupation()
    chunks.append(statistics(engine)["chunks"])
    engine.resume_memory_occupation()
    control(manager.continue_generation, ContinueGenerationReqInput())
    return chunks


def main():
    job = json.loads(sys.argv[1])
    options = {"device": "cpu", "dtype": "float32", "sampling_backend": "pytorch",
               "attention_backend": "torch_native", "disable_overlap_schedule": True,
               "chunked_prefill_size": -1, "max_total_tokens": 4096, "page_size": 16,
               "max_running_requests": 16, "grammar_backend": "none", "skip_tokenizer_init": True,
               "log_level": "error", "mem_fraction_static": 0.5} | job.get("options", {})
    engine = Engine(model_path=job["model"], **options)
    print("ready", flush=True)
    if job.get("wait"):
        sys.stdin.readline()
    sampling = {"temperature": 0, "max_new_tokens": job["tokens"], "ignore_eos": True}
    rounds, naps, begin = [], [], time.monotonic()
    for _ in range(job.get("rounds", 1)):
        done = engine.generate(input_ids=prompts(job), sampling_params=sampling)
        rounds.append([one["output_ids"] for one in done])
        if job.get("nap"):
            naps.append(nap(engine))
        if "until" in job:
            now = statistics(engine)
            if all(now[name] >= least for name, least in job["until"].items()):
                break
    result = {"ids": rounds, "seconds": time.monotonic() - begin, "naps": naps,
              "stats": statistics(engine)}
    if "update" in job:
        result["update"] = engine.update_weights_from_disk(job["update"])
    engine.shutdown()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
