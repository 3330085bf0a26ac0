#!/usr/bin/env python3
"""Checks that includes point downhill only (docs/flow.md, Rooms). Exit code 1 and one line per wrong include.

A room may include itself, the rooms named for it below, and whatever those may include. Tests may not reach further
than their room, so that a unit test stays one.
"""
import pathlib
import re
import sys

# room -> rooms it may include directly
DOWNHILL = {
    "base": [],
    "net": ["base"],
    "text": ["base"],
    "loader": ["base"],
    "backend": ["base"],
    "quant": ["loader", "backend", "base"],
    "model": ["quant", "loader", "backend", "base"],
    "engine": ["model", "base"],
    "api": ["net", "text", "engine", "base"],
    "router": ["net", "base"],
    "apps": ["api", "net", "text", "engine", "model", "quant", "loader", "backend", "router", "base"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def allowed(room):
    """Every room that may be included from this one."""
    found, queue = {room}, [room]
    while queue:
        for lower in DOWNHILL[queue.pop()]:
            if lower not in found:
                found.add(lower)
                queue.append(lower)
    return found


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    wrong, num_files = [], 0
    rooms = [(root / "src" / room, room) for room in DOWNHILL if room != "apps"] + [(root / "apps", "apps")]
    for folder, room in rooms:
        reachable = allowed(room)
        for path in sorted(folder.rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            num_files += 1
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                target = match.group(1).split("/")[0]
                where = f"{path.relative_to(root)}:{number}"
                if target == "quire":
                    continue
                if target not in DOWNHILL:
                    if not (path.parent / match.group(1)).exists():
                        wrong.append(f"{where}: \"{match.group(1)}\" does not start with a room")
                elif target not in reachable:
                    wrong.append(f"{where}: {room}/ may not include {target}/")
    known = {folder for folder, _ in rooms}
    for folder in sorted((root / "src").iterdir()):
        if folder.is_dir() and folder not in known:
            wrong.append(f"{folder.relative_to(root)}: a room that tools/check_layers.py does not know")
    for line in wrong:
        print(line)
    print(f"layers: {num_files} files, {len(wrong)} wrong includes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
