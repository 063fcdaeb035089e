#!/usr/bin/env python3
"""No object compiled for one instruction set may define a symbol that the linker could share with the rest of the program:
the copy it keeps would be the AVX-512 one, and the program would die on an older CPU. Usage: check_isa_symbols.py ARCHIVE"""
import re
import subprocess
import sys

ISA_OBJECT = re.compile(r"^(kernels|ops)_(avx|neon)\w*\.cpp\.o:$")


def main():
    listing = subprocess.run(["nm", "-C", "--defined-only", sys.argv[1]], capture_output=True, text=True, check=True).stdout
    current, seen, wrong = None, 0, []
    for line in listing.splitlines():
        if line.endswith(":"):
            current = line if ISA_OBJECT.match(line) else None
            seen += current is not None
        elif current:
            m = re.match(r"^[0-9a-f]* ([WVu]) (.*)$", line)
            if m and not m.group(2).startswith("DW.ref."):  # the unwinder's pointer: data, the same in every object
                wrong.append(f"{current} {m.group(2)}")
    if not seen:
        wrong.append(f"{sys.argv[1]} has no object of an instruction-set tier: the check would pass on nothing")
    print("\n".join(wrong) if wrong else f"{seen} instruction-set objects define nothing the linker could share")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
