#!/usr/bin/env python3
"""Runs a client of an API against `tern serve` with the demo model: run.py TERN MODEL SCRIPT.mjs [TEMPLATE]

The model chats as TEMPLATE says, a name in node_modules/.chat_templates, where its own has no tools and no thoughts.
The server gets a free port, which it prints; it must end with 0 when told to, whatever the client did."""
import pathlib
import re
import signal
import subprocess
import sys

tern, model, script = sys.argv[1:4]
template = sys.argv[4] if len(sys.argv) > 4 else None
here = pathlib.Path(__file__).resolve().parent
modules = here.parent.parent / "npm" / "node_modules"

command = [tern, "serve", "-m", model, "--port", "0", "-c", "4096"]
if template:
    command += ["--chat-template-file", str(modules / ".chat_templates" / (template + ".jinja"))]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
lines, url = [], None
for line in server.stderr:  # until the model is loaded
    lines.append(line)
    if found := re.search(r"listening on (http://\S+)", line):
        url = found[1]
    if "loaded in" in line:
        break
if not url:
    sys.exit("the server did not start:\n" + "".join(lines))

# Modules are looked for beside a script; the packages of the tests live elsewhere.
code = pathlib.Path(script).read_text()
client = subprocess.run(["node", "--input-type=module", "-", url], input=code, text=True, cwd=modules.parent)

server.send_signal(signal.SIGTERM)
rest = server.stderr.read()
if server.wait() != 0 or client.returncode != 0:
    sys.exit("client ended with %d, server with %d:\n%s" % (client.returncode, server.returncode, "".join(lines) + rest))
