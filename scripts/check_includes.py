#!/usr/bin/env python3
"""Who may include whom: every #include "folder/..." under src/ must be allowed by the table below (docs/architecture.md)."""
import pathlib
import re
import sys

# folder -> folders it may include besides itself. CMake's link lines say the same; this catches headers that need no symbol.
ALLOWED = {
    "base": set(),
    "gguf": {"base"},
    "quant": {"base", "gguf"},
    "text": {"base", "gguf"},
    "plan": {"base", "gguf"},
    "models": {"base", "gguf", "plan"},
    "backend": {"base", "gguf", "quant", "plan"},
    "cache": {"base", "plan", "backend"},
    "engine": {"base", "gguf", "quant", "plan", "models", "backend", "cache", "text"},
    "synth": {"base", "gguf", "quant", "text"},
    "measure": {"base"},
    "server": {"base", "gguf", "plan", "models", "backend", "engine", "text"},
    "capi": {"base", "engine", "text", "tern"},
    "cli": {"base", "gguf", "quant", "plan", "models", "backend", "cache", "engine", "text", "synth", "measure", "server"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)


def includes(path):
    return INCLUDE.findall(path.read_text())


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    wrong = []
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inl", ".cu", ".cuh"}:
            continue
        relative = path.relative_to(root / "src")
        folder = relative.parts[0]
        for kind, name in includes(path):
            target = name.split("/")[0]
            if kind == '"' and target in ALLOWED and target != folder and target not in ALLOWED[folder]:
                wrong.append(f"src/{relative}: {folder}/ may not include {name}")
            if kind == '"' and folder == "backend" and len(relative.parts) > 2 and name.startswith("backend/"):
                kind_of = name.split("/")[1] if name.count("/") > 1 else None
                if kind_of and kind_of != relative.parts[1]:
                    wrong.append(f"src/{relative}: one backend may not include another ({name})")
    print("\n".join(wrong) if wrong else "includes: every folder includes only what it may")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
