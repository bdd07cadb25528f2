# SPDX-License-Identifier: Apache-2.0
"""A folder with libraries that the system lacks: how it is made on Debian, and how a build uses it."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Packages to build with and to run with; only the files that the build needs are kept.
PACKAGES = (
    "liburing-dev",
    "liburing2",
    "libnuma-dev",
    "libnuma1",
    "libjansson-dev",
    "libjansson4",
    "libseccomp-dev",
    "libseccomp2",
    "libncurses-dev",
    "libncurses6",
    "libtinfo6",
    "libyaml-0-2",
    "libyaml-dev",
    "libopenblas-pthread-dev",
    "libopenblas0-pthread",
    "libgfortran5",
    "libquadmath0",
    "libcmocka-dev",
    "libcmocka0",
    "pkgconf-bin",
    "libpkgconf3",
)
TRIPLET = "x86_64-linux-gnu"
MOST_BYTES = 60 << 20


def library_folders(folder):
    """Returns the folders with shared libraries."""
    top = pathlib.Path(folder).resolve()
    found = sorted({path.parent for path in top.rglob("*.so*") if path.is_file()})
    return [path for path in found if TRIPLET in path.parts]


def environment(folder):
    top = pathlib.Path(folder).resolve()
    pc = sorted({str(path.parent) for path in top.rglob("*.pc")})
    libraries = [str(path) for path in library_folders(folder)]
    tools = top / "usr/bin"
    # The prefix /usr in .pc files means this folder. The system's own .pc files are not used.
    env = {
        "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
        "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1",
        "PKG_CONFIG_LIBDIR": ":".join(pc),
        "PKG_CONFIG_SYSROOT_DIR": str(top),
        "LD_LIBRARY_PATH": ":".join(filter(None, [*libraries, os.environ.get("LD_LIBRARY_PATH")])),
    }
    if not shutil.which("pkg-config") and (tools / "pkgconf").exists():
        env["PKG_CONFIG"] = str(tools / "pkgconf")
    return env


def cmake(folder):
    """Returns arguments of CMake with which builds and programs find the folder."""
    top = pathlib.Path(folder).resolve()
    libraries = [str(path) for path in library_folders(folder)]
    include = [str(path) for path in (top / "usr/include", top / f"usr/include/{TRIPLET}") if path.is_dir()]
    link = " ".join(f"-Wl,-rpath-link,{path}" for path in libraries)
    return [
        f"-DCMAKE_PREFIX_PATH={top / 'usr'}",
        f"-DCMAKE_LIBRARY_PATH={';'.join(libraries)}",
        f"-DCMAKE_C_FLAGS={' '.join('-isystem ' + path for path in include)}",
        f"-DCMAKE_EXE_LINKER_FLAGS={link}",
        f"-DCMAKE_SHARED_LINKER_FLAGS={link}",
        f"-DCMAKE_MODULE_LINKER_FLAGS={link}",
        f"-DCMAKE_BUILD_RPATH={';'.join(libraries)}",
    ]


def wanted(path):
    """Returns whether to keep a file: headers, shared libraries, pkg-config and its files."""
    name = path.name
    if "lapack" in name or name.startswith("libblas"):
        return False
    return (
        "include" in path.parts or ".so" in name or name.endswith(".pc") or name == "pkgconf"
    ) and not name.endswith(".a")


def unpack(packages, folder):
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, scratch], check=True)
        top = pathlib.Path(scratch)
        for path in sorted(top.rglob("*")):
            there = folder / path.relative_to(top)
            if (path.is_file() or path.is_symlink()) and wanted(path.relative_to(top)):
                there.parent.mkdir(parents=True, exist_ok=True)
                there.unlink(missing_ok=True)
                shutil.copy2(path, there, follow_symlinks=False)


def mend_links(folder):
    """Relinks absolute links, and those to Debian's alternatives, to files within the folder."""
    for path in folder.rglob("*"):
        if not path.is_symlink() or path.exists():
            continue
        target = os.readlink(path)
        inside = folder / target.lstrip("/")
        path.unlink()
        if target.startswith("/") and inside.exists():
            path.symlink_to(os.path.relpath(inside, path.parent))


def fetch(where):
    """Makes the folder. Return: the exit status."""
    folder = pathlib.Path(where).resolve()
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        print("gpu-suite: --fetch-deps works on Debian (apt-get, dpkg-deb)", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            os.chmod(scratch, 0o755)  # apt's own user writes there
            subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=scratch, check=True)
            unpack(sorted(pathlib.Path(scratch).glob("*.deb")), folder)
        mend_links(folder)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"gpu-suite: --fetch-deps: {error}", file=sys.stderr)
        return 1
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    print(f"gpu-suite: {folder}: {size / (1 << 20):.1f} MiB of {len(PACKAGES)} packages")
    if size > MOST_BYTES:
        print(f"gpu-suite: --fetch-deps: more than {MOST_BYTES >> 20} MiB", file=sys.stderr)
        return 1
    return 0
