# SPDX-License-Identifier: Apache-2.0
"""Fills the column "hardware" of the tables of Documentation/results/gpu.md, to be pasted there."""

import re

from suite.work import TOP

DOCUMENT = TOP / "Documentation/results/gpu.md"
WAITING = "*not yet run*"


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def tables(text):
    """Returns (title, head, rows) of each table whose last column is "hardware"."""
    title, lines = "", text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("#"):
            title = line.lstrip("# ")
        if not re.fullmatch(r"\|[-:| ]+\|", line) or cells(lines[i - 1])[-1] != "hardware":
            continue
        rows = []
        for row in lines[i + 1 :]:
            if not row.startswith("|"):
                break
            rows.append(cells(row))
        yield title, cells(lines[i - 1]), rows


def outcomes(part):
    """Returns {(program, test): (outcome, reason)}, and the facts by name."""
    tests, facts = {}, {}
    for program in part.get("programs", {}).values():
        for test in program["tests"]:
            tests[test["program"], test["test"]] = test["outcome"], test["reason"]
        for name, fact in program["facts"].items():
            facts[name.split("/", 1)[1]] = fact
    return tests, facts


def tests_of(title, row, known):
    """Returns a row's tests: `memory/test_x`, `test_x` of the section's program, or a program."""
    own = re.findall(r"([a-z_]+)\.c", title)
    found = []
    for word in re.findall(r"`([^`]+)`", " | ".join(row[:-1])):
        if "/" in word:
            found.append(tuple(word.split("/", 1)))
        else:
            found += [(program, word) for program in own]
    found = [key for key in found if key in known]
    if not found:
        found = [key for key in known if re.search(rf"`{key[0]}`", " | ".join(row[:-1]))]
    return list(dict.fromkeys(found))


def told(row, facts):
    """Returns the facts that the row names in code, also by a prefix (`scrub.*`)."""
    names = re.findall(r"`([a-z][\w.]*\.(?:\w+|\*))`", " | ".join(row[:-1]))
    words = []
    for name in names:
        for fact, value in facts.items():
            if fact == name or name.endswith(".*") and fact.startswith(name[:-1]):
                number = value["value"]
                number = f"{number:.4g}" if isinstance(number, (int, float)) else number
                words.append(f"`{fact}` {number} {value['unit']}".rstrip())
    return words


def of_tests(title, row, tests, facts):
    found = tests_of(title, row, tests)
    if not found:
        return None
    words = [
        f"{tests[key][0]}: {key[1]}{': ' + tests[key][1] if tests[key][1] else ''}"
        for key in found
        if tests[key][0] != "passed"
    ]
    if len(words) < len(found):
        words.insert(0, "seen")
    return "; ".join(words + told(row, facts))


def of_benchmark(row, part):
    """Returns the range of the ratios of a figure's cases, and how many reach the goal."""
    names = re.findall(r"`(\w+)`", row[0])
    done = part.get("parts", {}).get(names[0]) if names else None
    if not done:
        return None
    if done["outcome"] != "done" and not done["rows"]:
        return f"{done['outcome']}: {done['why']}"
    figures = names[1:] or sorted({one["name"] for one in done["rows"]})
    words = []
    for figure in figures:
        rows = [one for one in done["rows"] if one["name"] == figure and "ratio" in one]
        if not rows:
            continue
        ratios = sorted(one["ratio"] for one in rows)
        judged = [one["reached"] for one in rows if one.get("reached") is not None]
        span = f"{ratios[0]:.3f}" if len(ratios) == 1 else f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        words.append(
            (f"{figure} " if len(figures) > 1 else "")
            + span
            + (f" ({sum(judged)} of {len(judged)} reach the goal)" if judged else "")
        )
    return "; ".join(words) or None


def fill(state):
    """Returns [(title, head, rows)], with only those tables and rows for which there are results."""
    tests, facts = outcomes(state["parts"]["conformance"])
    found = []
    for title, head, rows in tables(DOCUMENT.read_text()) if DOCUMENT.exists() else []:
        filled = []
        for row in rows:
            here = None
            if row[-1] == WAITING:
                here = (
                    of_benchmark(row, state["parts"]["bench"])
                    if head[0] == "part"
                    else of_tests(title, row, tests, facts)
                )
            if here:
                filled.append([*row[:-1], re.sub(r"(?<!\\)\|", r"\|", here)])
        if filled:
            # Rows of a rehearsal must not be taken for those of hardware.
            found.append((title, [*head[:-1], "rehearsal"] if state["rehearsal"] else head, filled))
    return found
