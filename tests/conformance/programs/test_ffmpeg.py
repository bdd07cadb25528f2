# SPDX-License-Identifier: Apache-2.0
"""ffmpeg carries frames to the device and back, and each comes back as it was."""
import shutil
import subprocess

import pytest

FRAMES = 25


def frames(text):
    return [line.split(",")[-1].strip() for line in text.splitlines() if line and line[0].isdigit()]


@pytest.fixture(scope="module")
def ffmpeg():
    path = shutil.which("ffmpeg")
    if not path:
        pytest.skip("no ffmpeg (Debian: ffmpeg)")
    hardware = subprocess.run([path, "-hide_banner", "-filters"], capture_output=True, text=True, timeout=300)
    if "hwupload_cuda" not in hardware.stdout:
        pytest.skip("this ffmpeg has no hwupload_cuda")
    return path


@pytest.mark.parametrize("form", ["nv12", "yuv420p", "p010le", "yuv444p"])
def test_upload_and_download(ffmpeg, run, form):
    def md5(filters, *options):
        return frames(run([ffmpeg, "-hide_banner", "-loglevel", "error", *options, "-f", "lavfi", "-i",
                           "testsrc2=size=322x242:rate=25:duration=1", "-vf", filters, "-f", "framemd5", "-"]))

    device = ["-init_hw_device", "cuda=gpu", "-filter_hw_device", "gpu"]
    there_and_back = md5(f"format={form},hwupload_cuda,hwdownload,format={form}", *device)
    assert len(there_and_back) == FRAMES
    assert there_and_back == md5(f"format={form}")
