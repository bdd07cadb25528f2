#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds mmd and a tenant as a later version may be: more policies, another driver, longer structs and regions.

usage: future.py OUTPUT_DIR [CMAKE_ARGUMENT...]
       future.py --check

The sources are copied to OUTPUT_DIR/source, EDITS are made in them, and OUTPUT_DIR/build gets bin/mmd and
bin/wire-tenant. A second call builds what has changed. --check only finds what EDITS would change.
"""
import pathlib
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[3]
COPIED = ["CMakeLists.txt", "cmake", "include", "libclient", "mmd", "kernels", "tools", "Documentation", "tests/abi/wire"]

# Bytes that no version knows: a hello must not have them, a welcome may.
NOVEL = "MM_FEAT_NOVEL (UINT64_C(1) << 40)"

# File, text that occurs once in it, text in its place.
EDITS = [
    # A policy before all others, so that each of them has another number.
    ("mmd/core/core.h", "\tMM_POLICY_RECOMPUTE,\n", "\tMM_POLICY_CLAIRVOYANT,\n\tMM_POLICY_RECOMPUTE,\n"),
    ("mmd/config/table.c", "config_policy_choices[] = {",
     'config_policy_choices[] = {\n\t{ "clairvoyant", MM_POLICY_CLAIRVOYANT, "knows what will come" },'),
    ("mmd/core/market/policy.c", "policy_table[MM_POLICY_COUNT] = {\n",
     "policy_table[MM_POLICY_COUNT] = {\n\t[MM_POLICY_CLAIRVOYANT] = { .market = true, .lends = true, .kv_swaps = true,\n"
     "\t\t.decide = policy_decide_market },\n"),
    # Another driver's name.
    ("mmd/common/proto.h", '"cuda" : "software"', '"cuda" : "novel-gpu"'),
    # A feature that mmd states unasked.
    ("include/mm/abi.h", "#define MM_SESSION_BYTES", f"#define {NOVEL}\n#define MM_SESSION_BYTES"),
    ("mmd/shell/handshake.c", "w.features = s->features;", "w.features = s->features | MM_FEAT_NOVEL;"),
    # Longer messages.
    ("include/mm/abi.h", "static_assert(sizeof(struct mm_hello) == 128 && ", "static_assert("),
    ("include/mm/abi.h", "\tuint64_t reserved[7];    /* must be 0 */\n};\n",
     "\tuint64_t reserved[7];    /* must be 0 */\n\tuint64_t novel[4];\n};\n"),
    ("include/mm/abi.h", "static_assert(sizeof(struct mm_welcome) == 1024 && ", "static_assert("),
    ("include/mm/abi.h", "\tuint64_t reserved[58];\n", "\tuint64_t reserved[58];\n\tuint64_t novel[16];\n"),
    ("mmd/shell/handshake.c", "\t\t.n_devices = s->shell->n_pools,\n",
     "\t\t.n_devices = s->shell->n_pools,\n\t\t.novel = { [0 ... 15] = UINT64_MAX },\n"),
    # Longer regions.
    ("include/mm/abi.h", "swap[MM_SWAP_LOTS][MM_SWAP_PIECES];\n};",
     "swap[MM_SWAP_LOTS][MM_SWAP_PIECES];\n\tstruct mm_cursor novel[3];\n};"),
    ("include/mm/abi.h", "map[MM_MAP_ENTRIES]; /* page id + 1, or 0 = unmapped */\n};",
     "map[MM_MAP_ENTRIES];\n\tstruct mm_cursor novel[3];\n};"),
    ("include/mm/abi.h", "struct mm_cold_live cold;\n};",
     "struct mm_cold_live cold;\n\tstruct mm_cursor novel[3];\n};"),
    ("CMakeLists.txt", "add_subdirectory(tools)\n",
     "add_subdirectory(tools)\nadd_executable(wire-tenant tests/abi/wire/tenant.c)\n"
     "target_link_libraries(wire-tenant mm-client)\n"),
]


def edited():
    """{path: its text} of what EDITS change."""
    texts = {}
    for path, old, new in EDITS:
        text = texts.get(path) or (TOP / path).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise SystemExit(f"future.py: {path} has {text.count(old)} times {old!r}: adapt EDITS")
        texts[path] = text.replace(old, new)
    return texts


def copy_changed(source, target, data):
    """Leaves what is equal as it is, so that little is built again."""
    if not target.exists() or target.read_bytes() != data:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        shutil.copymode(source, target)


def copy(output):
    texts = edited()
    for name in COPIED:
        top = TOP / name
        for source in sorted(top.rglob("*")) if top.is_dir() else [top]:
            path = source.relative_to(TOP).as_posix()
            if source.is_file() and "__pycache__" not in path:
                data = texts[path].encode() if path in texts else source.read_bytes()
                copy_changed(source, output / "source" / path, data)


def main():
    if sys.argv[1:] == ["--check"]:
        edited()
        return
    output = pathlib.Path(sys.argv[1])
    copy(output)
    build = output / "build"
    if not (build / "build.ninja").exists():
        subprocess.run(["cmake", "-G", "Ninja", "-S", str(output / "source"), "-B", str(build), "-DMM_TESTS=OFF",
                        "-DMM_CUDA=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", *sys.argv[2:]], check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(build), "--target", "mmd", "wire-tenant"], check=True)


if __name__ == "__main__":
    main()
