#!/usr/bin/env python3
"""Three `tern serve` behind haproxy with deploy/haproxy.cfg: haproxy_test.py TERN MODEL CONFIG

Conversations stay with one server, a stream goes on elsewhere than it was cut, a server that is killed or told to stop
is noticed by nobody but those it was answering, and the figures of all are Prometheus text."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin") or sys.exit("haproxy is missing: scripts/deps.sh installs it")
NAMES = ["one", "two", "three"]
SYSTEM = {"role": "system", "content": "You answer in one short sentence."}


class Tern:
    """A server on a port of its own."""

    def __init__(self, binary, model):
        command = [binary, "serve", "-m", model, "--port", "0", "-c", "1024", "-np", "4", "-t", "1"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = []
        self.port = None
        for line in self.process.stderr:  # until the model is loaded
            said.append(line)
            if found := re.search(r"listening on http://[^:]+:(\d+)", line):
                self.port = int(found[1])
            if "loaded in" in line:
                return
        sys.exit("a server did not start:\n" + "".join(said))

    def figures(self):
        return prometheus(get(self.port, "/metrics"))


class Proxy:
    """haproxy with the given configuration, but for addresses; its listening socket is inherited, so no port is guessed."""

    def __init__(self, config, servers):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        text, binds = re.subn(r"(?m)^(\s*bind) .*", rf"\1 fd@{self.listener.fileno()}", open(config).read())
        assert binds == 1
        for name, server in zip(NAMES, servers):
            text, found = re.subn(rf"(?m)^(\s*server {name}) .*", rf"\1 127.0.0.1:{server.port}", text)
            assert found == 1, name
        self.file = tempfile.NamedTemporaryFile("w", suffix=".cfg")
        self.file.write(text)
        self.file.flush()
        self.process = subprocess.Popen([HAPROXY, "-db", "-q", "-f", self.file.name], pass_fds=[self.listener.fileno()])


def get(port, path, headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    assert response.status == 200, (path, response.status, text)
    return text


def send(port, body, headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    assert response.status == 200, (response.status, response.read())
    return response


def chat(messages, tokens=8, **more):
    return {"model": "", "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


def ask(port, messages):
    """The answer and the name of the server that gave it."""
    response = send(port, chat(messages))
    return json.loads(response.read()), response.headers["X-Tern-Server"]


def events(response):
    """The numbers and data of a stream."""
    number = None
    for line in response:
        if line.startswith(b"id: "):
            number = int(line[4:])
        elif line.startswith(b"data: "):
            yield number, line[6:].decode().strip()


def text_of(data):
    choices = [] if data == "[DONE]" else json.loads(data)["choices"]
    return choices[0]["delta"].get("content", "") if choices else ""


def prometheus(text):
    """Every sample by its name; every line must be one, a comment or empty."""
    samples, typed = {}, set()
    for line in text.splitlines():
        if found := re.fullmatch(r"# TYPE (\w+) (counter|gauge|histogram)", line):
            typed.add(found[1])
        elif line and not line.startswith("# HELP "):
            found = re.fullmatch(r'([a-zA-Z_:][\w:]*)(\{(?:\w+="[^"]*",?)*\})? (\S+)', line)
            assert found, line
            assert found[1] in typed or re.sub("_(bucket|sum|count)$", "", found[1]) in typed, line
            samples[found[1]] = samples.get(found[1], 0) + float(found[3])
    return samples


def conversations_stay(proxy):
    """Second turns find what the first left behind; the conversations are spread."""
    places = {}
    for i, word in enumerate(["river", "bread", "lamp", "winter", "bridge", "letter"]):
        # With a system prompt and without, as a string and in parts.
        question = f'What does "{word}" mean?'
        first = {"role": "user", "content": question if i % 3 else [{"type": "text", "text": question}]}
        messages = ([SYSTEM] if i % 2 else []) + [first]
        answer, places[word] = ask(proxy.port, messages)
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "And in a song?"}]
        answer, place = ask(proxy.port, messages)
        assert place == places[word], (word, place, places)
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached > 0, (word, answer["usage"])
    assert len(set(places.values())) > 1, places
    return places


def figures_of_all(servers, places):
    for name, server in zip(NAMES, servers):
        figures = server.figures()
        asked = sum(place == name for place in places.values())
        assert figures["tern_requests_total"] == 2 * asked, (name, places, figures)
        assert figures["tern_time_to_first_token_seconds_count"] == 2 * asked, (name, figures)


def resumes_where_it_was_begun(proxy):
    response = send(proxy.port, chat([SYSTEM, {"role": "user", "content": "Tell me about boats."}], 24, stream=True),
                    {"X-Resumable-Stream": "1"})
    stream = response.headers["X-Stream-Id"]
    told = events(response)
    seen = [next(told) for _ in range(5)]
    response.close()
    rest = get(proxy.port, "/v1/stream/" + stream, {"Last-Event-ID": str(seen[-1][0])})
    data = [line[6:] for line in rest.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]", rest
    whole, _ = ask_for(proxy, "Tell me about boats.", 24)
    assert "".join(text_of(d) for _, d in seen) + "".join(map(text_of, data)) == whole


def ask_for(proxy, question, tokens):
    response = send(proxy.port, chat([SYSTEM, {"role": "user", "content": question}], tokens))
    return json.loads(response.read())["choices"][0]["message"]["content"], response.headers["X-Tern-Server"]


def one_is_killed(proxy, servers):
    """Its streams break, visibly; whoever asks again is answered elsewhere."""
    body = chat([SYSTEM, {"role": "user", "content": "Count the stars."}], 800, stream=True)
    response = send(proxy.port, body)
    victim = response.headers["X-Tern-Server"]
    told = events(response)
    next(told), next(told)
    server = servers[NAMES.index(victim)]
    server.process.kill()
    server.process.wait()
    try:
        sys.exit("a stream that was cut ended like a whole one: " + repr(response.read()[-300:]))
    except http.client.IncompleteRead:
        pass
    _, place = ask_for(proxy, "Count the stars.", 8)
    assert place != victim, place
    return victim


def one_is_stopped(proxy, servers, gone):
    """What it answers it answers to the end; new requests go to the one that is left."""
    response = send(proxy.port, chat([SYSTEM, {"role": "user", "content": "Sing."}], 24, stream=True))
    place = response.headers["X-Tern-Server"]
    told = events(response)
    next(told), next(told)
    servers[NAMES.index(place)].process.send_signal(signal.SIGTERM)
    answers = [ask_for(proxy, question, 4) for question in ("Sing.", "Dance.", "Count the stars.")]
    data = [d for _, d in told]
    assert data[-1] == "[DONE]", data[-2:]
    assert servers[NAMES.index(place)].process.wait() == 0
    answers += [ask_for(proxy, question, 4) for question in ("Sing.", "Dance.")]
    left = ({*NAMES} - {gone, place}).pop()
    assert all(where == left for _, where in answers), (answers, left)


def main():
    binary, model, config = sys.argv[1:4]
    servers = [Tern(binary, model) for _ in NAMES]
    proxy = Proxy(config, servers)
    try:
        figures_of_all(servers, conversations_stay(proxy))
        resumes_where_it_was_begun(proxy)
        gone = one_is_killed(proxy, servers)
        one_is_stopped(proxy, servers, gone)
    finally:
        for process in [proxy.process] + [server.process for server in servers]:
            process.kill()
            process.wait()


main()
