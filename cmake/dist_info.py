#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""dist_info.py PYPROJECT VERSION FOLDER: writes the metadata by which Python finds an installed package.

pip writes them where it installs. A package of Debian needs them, too: vLLM and SGLang look there for plugins.
"""
import pathlib
import sys
import tomllib


def metadata(project, version):
    """The core metadata (PEP 566) of a [project] table."""
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {what}" for what in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {what}; extra == "{extra}"' for what in needs]
    return "\n".join(lines) + "\n"


def entry_points(project):
    """The file entry_points.txt of a [project] table."""
    return "\n".join(f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
                     for group, entries in project["entry-points"].items())


def main():
    pyproject, version, folder = sys.argv[1:]
    project = tomllib.loads(pathlib.Path(pyproject).read_text(encoding="utf-8"))["project"]
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    for name, text in (("METADATA", metadata(project, version)), ("entry_points.txt", entry_points(project)),
                       ("INSTALLER", "dpkg\n")):
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
