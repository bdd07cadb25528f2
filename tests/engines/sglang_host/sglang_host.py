# SPDX-License-Identifier: Apache-2.0
"""The host's processor as a platform of SGLang, which takes PyTorch's operators for everything.

SGLang's own platform for processors needs the package sglang-kernel; a platform from elsewhere, by
the entry point `sglang.srt.platforms`, computes without it. On it SGLang is a tenant of the
software GPU.
"""

import functools
import os
import platform
import threading

import psutil
import torch
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform


def _device_module(original, device=None):
    return original("cpu" if device is None else device)


def activate():
    return "sglang_host:HostPlatform"


class HostPlatform(SRTPlatform):
    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def init_backend(self):
        # As in a PyTorch that was built without CUDA; the one of PyPI takes CUDA's, without a GPU.
        torch.get_device_module = functools.partial(_device_module, torch.get_device_module)

    def get_default_attention_backend(self):
        return "torch_native"

    def get_device(self, device_id=0):
        del device_id
        return torch.device("cpu")

    def set_device(self, device):
        del device

    def get_device_name(self, device_id=0):
        del device_id
        return platform.machine()

    get_device_uuid = get_device_name

    def get_device_capability(self, device_id=0):
        del device_id

    def get_available_memory(self, device_id=0):
        del device_id
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_total_memory(self, device_id=0):
        return self.get_available_memory(device_id)[1]

    def get_current_memory_usage(self, device=None):
        del device
        available, total = self.get_available_memory()
        return float(total - available)


def break_steps():
    """A plugin of SGLang's. With MM_TEST_BREAK_STEPS it has a thread break a step off in the midst
    of one of the engine's, which is void then, until one was."""
    if not os.environ.get("MM_TEST_BREAK_STEPS"):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("sglang.srt.model_executor.model_runner.ModelRunner.load_model",
                          _watch_layer, HookType.AFTER)


def _watch_layer(result, runner):
    del result
    import mmd
    from mmd.sglang import _engine

    engine = _engine.required()

    def break_off():
        try:
            with mmd.Step(engine.client):
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    def hook(*_):
        if (engine.step.voids == 0 and engine.client.info.layers_cycling and
                engine.stats.steps % 8 == 5):
            thread = threading.Thread(target=break_off)
            thread.start()
            thread.join(0.5)  # its step waits for this one's end if a plan change is in progress

    runner.model.model.layers[6].register_forward_pre_hook(hook)
