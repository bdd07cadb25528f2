# SPDX-License-Identifier: Apache-2.0
"""Model folders that are wrong in exactly one way."""

import json
import math
import shutil
import struct


def split(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def join(path, header, body, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)


def first_tensor(header):
    return next(name for name in header if name != "__metadata__")


def edit_tensor(change):
    """A case that changes the first tensor's entry of an otherwise right header."""
    def apply(folder):
        path = folder / "model.safetensors"
        header, body = split(path)
        change(header, first_tensor(header), len(body))
        join(path, header, body)
    return apply


def edit_config(change):
    def apply(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))
    return apply


def raw(make):
    def apply(folder):
        path = folder / "model.safetensors"
        path.write_bytes(make(path.read_bytes()))
    return apply


def set_offsets(begin, end):
    def change(header, name, size):
        del size
        header[name]["data_offsets"] = [begin, end]
    return edit_tensor(change)


def add_tensor(name, shape, dtype="F16", fill=b"\1"):
    """A case with one more tensor behind the others."""
    def apply(folder):
        path = folder / "model.safetensors"
        header, body = split(path)
        size = {"F16": 2, "F32": 4}[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + size]}
        join(path, header, body + fill * size)
    return apply


def copy_tensor(name, new, flip=None):
    """A case where a tensor is there twice; @flip: but for that byte."""
    def apply(folder):
        path = folder / "model.safetensors"
        header, body = split(path)
        begin, end = header[name]["data_offsets"]
        data = bytearray(body[begin:end])
        if flip is not None:
            data[flip] ^= 1
        header[new] = dict(header[name], data_offsets=[len(body), len(body) + len(data)])
        join(path, header, body + bytes(data))
    return apply


def set_field(key, value):
    return edit_tensor(lambda header, name, size: header[name].__setitem__(key, value))


def overlap(header, name, size):
    """Two tensors of one shape claim the same bytes."""
    del name, size
    by_shape = {}
    for other, tensor in header.items():
        if other != "__metadata__":
            by_shape.setdefault(str(tensor["shape"]), []).append(other)
    a, b = next(names for names in by_shape.values() if len(names) > 1)[:2]
    header[b]["data_offsets"] = header[a]["data_offsets"]


def shift(header, name, size):
    del size
    header[name]["data_offsets"] = [x + 2 for x in header[name]["data_offsets"]]


def index(change=lambda the_map: None, text=None):
    """A case with an index of shards, of which the model's one file is the only one."""
    def apply(folder):
        header, _ = split(folder / "model.safetensors")
        the_map = {name: "model.safetensors" for name in header if name != "__metadata__"}
        change(the_map)
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": the_map}) if text is None else text)
    return apply


def make_case(good, folder, change):
    shutil.copytree(good, folder)
    change(folder)
    return folder
