"""Renders templates with Python's jinja2, configured the way transformers configures it for chat templates.

Reads JSON lines {"template", "variables", "now", "mutable", "arguments"} from standard input; writes {"ok": text} or
{"error": message} for each. `now` is the time in seconds that strftime_now shows. `mutable` permits methods that change a
list or a mapping, which the sandbox of transformers refuses and tern accepts. `arguments` ("object", "string") converts
those of the messages' tool calls first, as a caller of transformers has to.
"""

import datetime
import functools
import json
import sys

from jinja2 import ext, nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment


class Generation(ext.Extension):
    """The {% generation %} tag: its body, rendered by a caller block as transformers does."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def make_environment(kind):
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols])

    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


@functools.lru_cache(maxsize=None)
def compiled(environment, source):
    return environment.from_string(source)


def render(environment, case):
    def strftime_now(pattern):
        return datetime.datetime.fromtimestamp(case.get("now", 0)).strftime(pattern)

    try:
        text = compiled(environment, case["template"]).render(**case["variables"], strftime_now=strftime_now)
        text.encode("utf-8")
        return {"ok": text}
    except Exception as error:  # any failure of a template is a result here
        return {"error": f"{type(error).__name__}: {error}"}


def convert_arguments(messages, kind):
    for message in messages:
        for call in message.get("tool_calls") or []:
            function = call.get("function", call)
            arguments = function.get("arguments")
            if kind == "object" and isinstance(arguments, str):
                parsed = json.loads(arguments)
                function["arguments"] = parsed if isinstance(parsed, dict) else arguments
            elif kind == "string" and isinstance(arguments, dict):
                function["arguments"] = json.dumps(arguments, ensure_ascii=False)


def main():
    environments = {False: make_environment(ImmutableSandboxedEnvironment), True: make_environment(SandboxedEnvironment)}
    for line in sys.stdin:
        case = json.loads(line)
        convert_arguments(case["variables"].get("messages", []), case.get("arguments"))
        print(json.dumps(render(environments[case.get("mutable", False)], case)))


if __name__ == "__main__":
    main()
