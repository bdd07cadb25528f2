#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""headers.py INCLUDE [CUDA_INCLUDE]: an engine may include our headers and CUDA's in any order, in C and in C++."""

import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

INCLUDE = sys.argv[1]
TOOLKIT = sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] else None
CLIENT = ("mm/client.h", "cuda.h", "cuda_runtime_api.h")
OTHERS = ("mm/abi.h", "mm/client.h", "mm/client_cold.h", "mm/client_group.h", "mm/client_model.h", "mm/gpu.h", "mm/softgpu.h")
# Where there is no toolkit: what collided in it, as it stands there.
UUID = """
#ifndef CU_UUID_HAS_BEEN_DEFINED
#define CU_UUID_HAS_BEEN_DEFINED
struct CUuuid_st { char bytes[16]; };
typedef struct CUuuid_st CUuuid;
#endif
"""
FAKES = {
    "cuda.h": """
#ifndef __cuda_cuda_h__
#define __cuda_cuda_h__
#define CUDA_VERSION 13000
#define CUDAAPI
#define CUDA_CB
typedef unsigned long long CUdeviceptr_v2;
typedef CUdeviceptr_v2 CUdeviceptr;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;
""" + UUID + "#endif\n",
    "cuda_runtime_api.h": """
#ifndef __CUDA_RUNTIME_API_H__
#define __CUDA_RUNTIME_API_H__
typedef enum cudaError { cudaSuccess = 0 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
""" + UUID + "#endif\n",
}
USE = """
unsigned long long use(struct mm_client *client, CUstream stream, CUdeviceptr va);
unsigned long long use(struct mm_client *client, CUstream stream, CUdeviceptr va)
{
	return mm_step_join(client, stream) ? 0 : va;
}
"""

# A driver's types convert to those of client.h, in both languages and without a cast.
ALONE = """
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
CUdeviceptr use(struct mm_model *model, const struct mm_tensor *tensor, CUstream stream);
CUdeviceptr use(struct mm_model *model, const struct mm_tensor *tensor, CUstream stream)
{
	CUdeviceptr va = tensor->va;
	return mm_layer_begin(model, 0, stream) ? 0 : va;
}
"""


class Headers(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="mm-headers-")
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)
        for name, text in FAKES.items():
            (self.root / name).write_text(text)

    def compile(self, cuda, headers, use=""):
        """Each order at once says more than the first that fails."""
        wrong, headers = [], list(headers)
        for language, compiler in (("c", "cc"), ("c++", "c++")):
            if not shutil.which(compiler):
                continue
            for order in headers:
                text = "".join(f"#include <{name}>\n" for name in order) + use
                done = subprocess.run([compiler, "-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                                       "-I", INCLUDE, "-isystem", str(cuda), "-"],
                                      input=text, capture_output=True, text=True)
                if done.returncode:
                    first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
                    wrong.append(f"{language}: {', '.join(order)}: {first}")
        if wrong:
            self.fail("\n" + "\n".join(wrong))

    def test_without_a_toolkit(self):
        self.compile(self.root, [(name,) for name in (*OTHERS, "mm/types.h")])
        self.compile(self.root, itertools.permutations(OTHERS))

    def test_client_alone(self):
        """What an engine includes is plain C11 and C++17, and shows it neither a driver nor the wire. No struct has
        padding, in which a field that is added could lie without a change of its size."""
        for language, standard, compiler in (("c", "c11", "cc"), ("c++", "c++17", "c++")):
            if not shutil.which(compiler):
                continue
            done = subprocess.run([compiler, "-x", language, f"-std={standard}", "-pedantic", "-Wall", "-Wextra",
                                   "-Wconversion", "-Werror", "-E", "-I", INCLUDE, "-"],
                                  input="#include <mm/client.h>\n", capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            for word in ("CUstream", "CUdeviceptr", "mm_hello", "mm_msg", "mm/abi.h", "mm/gpu.h"):
                self.assertNotIn(word, done.stdout, f"{language}: client.h shows {word}")
            strict = subprocess.run([compiler, "-x", language, f"-std={standard}", "-pedantic", "-Wall", "-Wextra",
                                     "-Wconversion", "-Wpadded", "-Werror", "-fsyntax-only", "-I", INCLUDE, "-"],
                                    input="#include <mm/client.h>\n" + ALONE, capture_output=True, text=True)
            self.assertEqual(strict.returncode, 0, strict.stderr)

    def test_any_order_with_a_fake(self):
        self.compile(self.root, itertools.permutations(CLIENT), USE)
        self.compile(self.root, itertools.permutations(("mm/softgpu.h", *CLIENT[1:])))
        self.compile(self.root, itertools.permutations(("mm/gpu.h", "mm/client.h", "cuda_runtime_api.h")), USE)

    def test_any_order_with_the_toolkit(self):
        if not TOOLKIT or not pathlib.Path(TOOLKIT, "cuda_runtime_api.h").exists():
            self.skipTest("no CUDA toolkit here")
        self.compile(TOOLKIT, itertools.permutations(CLIENT), USE)
        self.compile(TOOLKIT, itertools.permutations(("mm/softgpu.h", *CLIENT[1:])))
        self.compile(TOOLKIT, itertools.permutations(("mm/gpu.h", "mm/client.h", "cuda_runtime_api.h")), USE)
        # mm/gpu.h takes the driver's types from cuda.h where that was there first: the one rule that is left.
        self.compile(TOOLKIT, [order for order in itertools.permutations(("mm/gpu.h", *CLIENT))
                               if order.index("cuda.h") < order.index("mm/gpu.h")], USE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
