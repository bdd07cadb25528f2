# SPDX-License-Identifier: Apache-2.0
"""mmserve speaks HTTP: the same tokens as from a file, what is refused, who hangs up, who is slow."""

import json
import math
import os
import re
import resource
import shutil
import signal
import socket
import subprocess

import pytest

import models
from programs import BIN, BUILD, SANITIZE, TOP, limit, read_until, wait_until
from server import Server
from tenant import make_requests, plain_tokens, read_lines

GREEDY = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
SHORT = ["--kv-share", "4M"]


@pytest.fixture
def listen(root):
    servers = []

    def starter(name, *args, **options):
        servers.append(Server(root, name, *args, **options))
        return servers[-1]

    yield starter
    for server in servers:
        server.kill()


@pytest.fixture
def shared(listen, model_dirs):
    """A server without mmd, which must end well."""
    server = listen("m", model_dirs[0], extra=SHORT)
    yield server
    server.stop()


def ids_of(choice):
    return choice["token_ids"]


def words(ids):
    return "".join(f" t{i}" for i in ids)


def test_the_same_tokens_as_from_a_file(root, start, listen, model_dirs):
    """Whole and in pieces, from memory that mmd lends."""
    d = start(pool="16M", page="64K")
    path = make_requests(root / "requests.jsonl", 6)
    want = plain_tokens(root, model_dirs[0], path)
    server = listen("m", model_dirs[0], daemon=d, extra=SHORT)
    for request in read_lines(path):
        body = {"prompt": request["prompt"], "max_tokens": request["max_tokens"], **GREEDY}
        said = server.complete(**body)
        choice = said["choices"][0]
        assert ids_of(choice) == want[request["id"]] and choice["finish_reason"] == "length"
        assert choice["text"] == words(want[request["id"]])
        assert said["usage"] == {"prompt_tokens": len(request["prompt"]), "completion_tokens": request["max_tokens"],
                                 "total_tokens": len(request["prompt"]) + request["max_tokens"]}
        events = server.events("/v1/completions", **body, stream_options={"include_usage": True})
        assert events[-1]["choices"] == [] and events[-1]["usage"] == said["usage"]
        pieces = [event["choices"][0] for event in events[:-1]]
        assert [i for piece in pieces for i in ids_of(piece)] == want[request["id"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert "requests             12 served in full" in server.stop()


def test_many_at_once(root, start, listen, model_dirs):
    """Two models on a pool that is too small for both: all get the tokens that they would get alone."""
    d = start(pool="4M", page="64K", policy="remap")
    servers, want = [], []
    for i in range(2):
        path = make_requests(root / f"{i}.jsonl", 8, output=(24, 64), seed=i)
        want.append(plain_tokens(root, model_dirs[i], path))
        servers.append(listen(f"m{i}", model_dirs[i], daemon=d, extra=["--kv-share", "1M"]))
    open_ = []
    for i, server in enumerate(servers):
        for request in read_lines(root / f"{i}.jsonl"):
            made = server.connection()
            made.request("POST", "/v1/completions", json.dumps(
                {"prompt": request["prompt"], "max_tokens": request["max_tokens"], **GREEDY}),
                {"Content-Type": "application/json"})
            open_.append((made, want[i][request["id"]]))
    for made, tokens in open_:
        said = json.loads(made.getresponse().read())
        assert ids_of(said["choices"][0]) == tokens
        made.close()
    for server in servers:
        server.stop()


def test_chat_and_text(shared):
    said = shared.ask("POST", "/v1/chat/completions", {
        "messages": [{"role": "system", "content": "t5 t6"},
                     {"role": "user", "content": [{"type": "text", "text": "t7"}, {"type": "text", "text": " huh"}]}],
        "max_completion_tokens": 4, **GREEDY})[2]
    same = shared.complete(prompt=[5, 6, 7, 0], max_tokens=4, **GREEDY)
    assert said["object"] == "chat.completion" and said["choices"][0]["message"] == {
        "role": "assistant", "content": words(ids_of(same["choices"][0]))[1:]}
    assert ids_of(said["choices"][0]) == ids_of(same["choices"][0])
    assert shared.complete(prompt="t5 t6\nt7 huh", max_tokens=4, **GREEDY)["choices"] == same["choices"]
    events = shared.events("/v1/chat/completions", messages=[{"role": "user", "content": "t5 t6 t7 huh"}],
                           max_tokens=4, stream_options={"continuous_usage_stats": True}, **GREEDY)
    assert events[-1]["usage"]["completion_tokens"] == 4 and all(event["usage"] for event in events)
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in event["choices"][0]["delta"] for event in events[1:])
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == \
        said["choices"][0]["message"]["content"]
    asked = shared.ask("POST", "/tokenize", {"prompt": "t5 t6\nt7 huh"})[2]
    assert asked["tokens"] == [5, 6, 7, 0] and asked["count"] == 4
    assert shared.ask("POST", "/detokenize", {"tokens": [5, 6, 7, 0]})[2] == {"prompt": "t5 t6 t7 t0"}


def test_ends(shared):
    """Stop strings, wherever they lie; end tokens; and what is not ended."""
    body = {"prompt": [1, 2, 3], "max_tokens": 24, **GREEDY}
    whole = shared.complete(**body)["choices"][0]
    ids, text = ids_of(whole), whole["text"]
    for stop in (f"t{ids[3]} t{ids[4]}", text[7:9], " "):
        want = text[:text.index(stop)]
        choice = shared.complete(**body, stop=stop)["choices"][0]
        assert choice["text"] == want and choice["finish_reason"] == "stop"
        events = shared.events("/v1/completions", **body, stop=["nothing like it", stop])
        assert "".join(event["choices"][0]["text"] for event in events) == want
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert shared.complete(**body, stop=["nothing like it"])["choices"][0] == whole
    at = next(i for i in range(2, 24) if ids[i] not in ids[:i])
    choice = shared.complete(**body, stop_token_ids=[ids[at]])["choices"][0]
    assert ids_of(choice) == ids[:at + 1] and choice["text"] == words(ids[:at]) and choice["finish_reason"] == "stop"


def test_sampling(shared):
    body = {"prompt": [1, 2, 3], "max_tokens": 16, "return_token_ids": True, "ignore_eos": True}

    def ids(**more):
        return ids_of(shared.complete(**{**body, **more})["choices"][0])

    greedy = ids(temperature=0)
    assert ids(seed=7) == ids(seed=7, temperature=1.0) and ids(seed=7) != ids(seed=8)
    assert ids() != ids() or ids() != ids()
    assert ids(top_p=1e-9) == greedy  # only the most likely one is left
    choice = shared.complete(**{**body, "temperature": 0, "logprobs": 0})["choices"][0]
    assert choice["logprobs"]["tokens"] == [f" t{i}" for i in greedy]
    assert all(math.log(1 / 256) * 3 < x < 0 for x in choice["logprobs"]["token_logprobs"])
    chat = shared.ask("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "t1 t2 t3"}], "logprobs": True, "max_tokens": 16, "temperature": 0,
        "ignore_eos": True})[2]["choices"][0]
    assert [x["logprob"] for x in chat["logprobs"]["content"]] == choice["logprobs"]["token_logprobs"]


REFUSED = {
    "not JSON": ("{", 400, None, "not valid JSON in line 1"),
    "a list": ("[]", 400, None, "not a JSON object"),
    "nothing": ("", 400, None, "not valid JSON"),
    "no prompt": ({}, 400, "prompt", "prompt is missing"),
    "an empty prompt": ({"prompt": []}, 400, "prompt", "not empty"),
    "two prompts": ({"prompt": ["t1", "t2"]}, 400, "prompt", "one prompt in a request, not 2"),
    "an id too large": ({"prompt": [1, 256]}, 400, "prompt", "prompt[1] is not a token id below the vocabulary's 256"),
    "a long prompt": ({"prompt": [1] * 600}, 400, "prompt", "the most for this model are 512"),
    "a long output": ({"prompt": [1], "max_tokens": 512}, 400, "max_tokens", "more than 512"),
    "no tokens": ({"prompt": [1], "max_tokens": 0}, 400, "max_tokens", "whole number from 1"),
    "another model": ({"prompt": [1], "model": "gpt-5"}, 404, "model", "the model 'gpt-5' is not served here"),
    "two choices": ({"prompt": [1], "n": 2}, 400, "n", "n is not supported"),
    "hot": ({"prompt": [1], "temperature": 2.5}, 400, "temperature", "from 0 to 2"),
    "top_p": ({"prompt": [1], "top_p": 0}, 400, "top_p", "above 0"),
    "alternatives": ({"prompt": [1], "logprobs": 5}, 400, "logprobs", "no alternatives"),
    "a penalty": ({"prompt": [1], "presence_penalty": 0.5}, 400, "presence_penalty", "not supported"),
    "unknown": ({"prompt": [1], "frobs": 1}, 400, "frobs", "frobs is not a field"),
    "an empty stop": ({"prompt": [1], "stop": ""}, 400, "stop", "1 to 1024 bytes"),
    "stops": ({"prompt": [1], "stop": ["a"] * 17}, 400, "stop", "at most 16"),
    "usage": ({"prompt": [1], "stream_options": {"include_usage": True}}, 400, "stream_options", "stream: true"),
    "a byte that is no UTF-8": (b'{"prompt": "\xff"}', 400, None, "not valid JSON"),
    "a zero byte": (b'{"prompt": "\\u0000"}', 400, None, "not valid JSON"),
    "twice the same": ('{"prompt": [1], "prompt": [2]}', 400, None, "not valid JSON"),
    "a deep one": ("[" * 100000, 400, None, "not valid JSON"),
}


def test_refused(shared):
    for case, (body, status, param, says) in REFUSED.items():
        got, _, said = shared.ask("POST", "/v1/completions", body)
        assert (got, said["error"]["param"]) == (status, param), (case, said)
        assert says in said["error"]["message"] and said["error"]["type"], (case, said)


def test_refused_by_the_headers(shared):
    for method, path, headers, status in (
            ("GET", "/v2/models", {}, 404), ("DELETE", "/health", {}, 405), ("GET", "/v1/completions", {}, 405),
            ("POST", "/v1/completions", {"Content-Type": "text/plain"}, 415),
            ("POST", "/v1/completions", {"Content-Length": str(1 << 30)}, 413)):
        assert shared.ask(method, path, None if "Content-Length" in headers else "{}", headers)[0] == status
    for message in ({"role": "king", "content": "t1"}, {"role": "user"}, {"role": "user", "content": [{"type": "image_url"}]}):
        status, _, said = shared.ask("POST", "/v1/chat/completions", {"messages": [message]})
        assert status == 400 and said["error"]["message"].startswith("messages[0].")


def test_long_bodies(shared):
    """Of a body that is announced nothing is read, and of one that is not only so much is kept."""
    with shared.connect() as plug:
        plug.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 1073741824\r\n\r\n")
        assert b"413" in plug.recv(4096).split(b"\r\n")[0]
    with shared.connect() as plug:
        plug.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        with pytest.raises(OSError):
            for _ in range(1024):
                plug.sendall(chunk)
    with shared.connect() as plug:
        plug.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n" + 5 * chunk + b"0\r\n\r\n")
        assert b"413" in plug.recv(4096).split(b"\r\n")[0]
    assert shared.ask("GET", "/health")[0] == 200


def test_hanging_up_cancels(listen, model_dirs):
    """A request whose client is gone gives its memory back; one beside it is not harmed."""
    server = listen("m", model_dirs[0], extra=[*SHORT, "--max-batch", "4"])
    body = {"prompt": [1, 2, 3], "max_tokens": 300, **GREEDY}
    want = server.complete(**body)["choices"][0]["token_ids"]
    for stream in (False, True):
        made = [server.connection() for _ in range(3)]
        for each in made[:2]:
            each.request("POST", "/v1/completions", json.dumps({**body, "stream": stream}),
                         {"Content-Type": "application/json"})
        made[2].request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        for each in made[:2]:
            each.close()
        assert json.loads(made[2].getresponse().read())["choices"][0]["token_ids"] == want
        made[2].close()
    server.wait_metric("mmserve_requests_running", lambda n: n == 0)
    m = server.metrics()
    ended = {end: m[f'mmserve_requests_total{{end="{end}"}}'] for end in ("length", "cancelled")}
    assert sum(ended.values()) == 7 and ended["length"] >= 3
    server.stop()


def test_too_many_requests(listen, model_dirs):
    server = listen("m", model_dirs[0], extra=[*SHORT, "--max-batch", "1", "--queue", "2", "--connections", "8"])
    body = {"prompt": [1], "max_tokens": 500, **GREEDY}
    made = [server.connection() for _ in range(6)]
    for each in made:
        each.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answers = [each.getresponse() for each in made]
    said = [json.loads(answer.read()) for answer in answers]
    for answer, what in zip(answers, said):
        assert answer.status in (200, 429)
        if answer.status == 429:
            assert answer.headers["Retry-After"] == "1" and what["error"]["type"] == "rate_limit_error"
    served = [what["choices"][0]["token_ids"] for answer, what in zip(answers, said) if answer.status == 200]
    assert len(served) >= 3 and all(ids == served[0] for ids in served)
    for each in made:
        each.close()
    server.stop()


def test_slow_clients_and_crowds(listen, model_dirs):
    """Headers byte by byte, answers that nobody takes, thousands of connections: others are served meanwhile."""
    server = listen("m", model_dirs[0], extra=[*SHORT, "--connections", "32", "--http-timeout", "1000"])
    body = {"prompt": [1, 2, 3], "max_tokens": 300, **GREEDY}
    want = server.complete(**body)["choices"][0]["token_ids"]
    running = server.connection()
    running.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
    answer = running.getresponse()

    slow = [server.connect() for _ in range(8)]
    for plug in slow:
        plug.sendall(b"POST /v1/completions HTTP/1.1\r\nHost")

    def all_closed():
        for plug in slow[:]:
            try:
                plug.send(b"x")
            except OSError:
                slow.remove(plug)
        return not slow

    wait_until(all_closed, 30, "slow clients to be closed", every=0.05)
    crowd = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    for _ in range(200 if SANITIZE else 1000):
        plug = socket.socket()
        plug.setblocking(False)
        plug.connect_ex(("127.0.0.1", server.port))
        crowd.append(plug)
    said = b"".join(iter(lambda: answer.read(65536), b"")).decode()
    events = [json.loads(line.removeprefix("data: ")) for line in said.split("\n\n")[:-2]]
    assert [i for event in events for i in event["choices"][0]["token_ids"]] == want
    for plug in crowd:
        plug.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    running.close()
    wait_until(lambda: try_health(server), 30, "the crowd to be gone")
    m = server.metrics()
    assert m["mmserve_connections_refused_total"] > 0 and m["mmserve_connections_slow_total"] >= 8
    server.stop()


def try_health(server):
    try:
        return server.ask("GET", "/health")[0] == 200
    except (OSError, TypeError, ValueError):
        return False


def test_keys_and_a_socket(root, listen, model_dirs):
    (root / "keys").write_text("first-key\nsecond-key\n")
    server = listen("m", model_dirs[0], listen=f"unix:{root}/http", extra=[*SHORT, "--api-keys", root / "keys"])
    assert server.ask("GET", "/health")[0] == 200
    for given, status in (({}, 401), ({"Authorization": "Bearer second-kez"}, 401), ({"Authorization": "Bearer"}, 401),
                          ({"Authorization": "first-key"}, 401), ({"Authorization": "Bearer first-keyy"}, 401),
                          ({"Authorization": "Bearer second-key"}, 200), ({"Authorization": "bearer first-key"}, 200)):
        assert server.ask("GET", "/v1/models", headers=given)[0] == status, given
    server.stop()
    assert not os.path.exists(root / "http")


def test_addresses(root, model_dirs, shared):
    taken = f"127.0.0.1:{shared.port}"
    for address, says in (("0.0.0.0:0", "is not a loopback address: with --anywhere it is allowed"), ("here:80", "numeric host"),
                          ("127.0.0.1", "HOST:PORT"), ("unix:", "1 to 107 bytes"), (taken, "in use"), ("[::]:0", "loopback")):
        done = subprocess.run([str(BIN / "mmserve"), "--model", str(model_dirs[0]), "--plain", "--listen", address],
                              capture_output=True, text=True, timeout=limit(60), check=False)
        assert done.returncode == 1 and says in done.stderr, (address, done.stderr)


def test_going_away(root, start, listen, model_dirs):
    """mmserve that is stopped says so to those who wait; so does one whose mmd ends."""
    d = start(pool="16M", page="64K")
    server = listen("m", model_dirs[0], daemon=d, extra=SHORT)
    made = server.connection()
    made.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 500, "stream": True, **GREEDY}),
                 {"Content-Type": "application/json"})
    answer = made.getresponse()
    assert answer.readline().startswith(b"data: {")
    server.stop()
    rest = answer.read().decode()
    assert rest.endswith("data: [DONE]\n\n")
    assert "shutting down" in rest or rest.count("token_ids") >= 499
    made.close()
    server = listen("n", model_dirs[0], daemon=d, extra=SHORT)
    d.stop()
    server.process.wait(timeout=limit(60))
    assert server.process.returncode == 1


def test_leaving(root, start, listen, model_dirs):
    """mmd has it leave: who is being served is served to the end, nobody new is, and it ends well."""
    body = {"prompt": [1], "max_tokens": 500, **GREEDY}
    for command, whole in ((["shutdown", "--within", "100"], True), (["drain", "m"], False)):
        d = start(pool="16M", page="64K", name=command[0])
        server = listen("m", model_dirs[0], daemon=d, extra=SHORT)
        want = server.complete(**body)["choices"][0]["token_ids"]
        made = server.connection()
        made.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = made.getresponse()
        first = answer.readline()
        order = subprocess.Popen([str(BIN / "mmctl"), "--dir", str(d.dir), *command], stdout=subprocess.DEVNULL)
        rest = (first + answer.read()).decode()
        assert rest.endswith("data: [DONE]\n\n")
        pieces = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")]
        got = [i for piece in pieces for choice in piece.get("choices", ()) for i in choice["token_ids"]]
        # A tenant that is drained is granted no memory, so that a request may end for want of it.
        assert got == want or not whole and "error" in pieces[-1] and got == want[:len(got)]
        made.close()
        assert server.process.wait(timeout=limit(60)) == 0
        assert order.wait(timeout=limit(60)) == 0
        if whole:
            assert d.process.wait(timeout=limit(60)) == 0
            d.process = None


@pytest.mark.skipif(not shutil.which("spm_train"), reason="no spm_train (sentencepiece)")
def test_sentencepiece(listen, tmp_path):
    """A tokenizer.model with byte pieces: text is what the library makes of it, and a stream has whole characters."""
    folder = models.model(tmp_path / "m", 5, "--vocab", 600)
    os.unlink(folder / "tokenizer_config.json")  # which says that there is no BOS
    (tmp_path / "text").write_text("one two three four five six seven eight nine ten\n" * 20)
    subprocess.run(["spm_train", f"--input={tmp_path}/text", f"--model_prefix={folder}/tokenizer", "--vocab_size=300",
                    "--byte_fallback=true", "--hard_vocab_limit=false",
                    "--model_type=bpe", "--user_defined_symbols=caf\u00e9"], check=True, capture_output=True,
                   timeout=limit(60))
    server = listen("m", folder, extra=SHORT)
    if "built without" in server.text:
        pytest.skip(server.text)
    assert server.text == "text: by tokenizer.model\n"
    for text in ("one two", "seven  three", "four caf\u00e9 five", "six \U0001f600"):
        said = server.ask("POST", "/tokenize", {"prompt": text})[2]
        ids = subprocess.run(["spm_encode", f"--model={folder}/tokenizer.model", "--output_format=id"], input=text,
                             check=True, capture_output=True, text=True, timeout=limit(60)).stdout
        assert said["tokens"] == [1, *map(int, ids.split())]  # with a BOS
        bare = server.ask("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})[2]["tokens"]
        assert bare == said["tokens"][1:]
        assert server.ask("POST", "/detokenize", {"tokens": said["tokens"][1:]})[2] == {"prompt": " ".join(text.split())}
    face = server.ask("POST", "/tokenize", {"prompt": "\U0001f600", "add_special_tokens": False})[2]["tokens"][-4:]
    assert server.ask("POST", "/detokenize", {"tokens": face[:3]})[2] == {"prompt": "\ufffd" * 3}
    body = {"prompt": "one two", "max_tokens": 200, **GREEDY, "temperature": 2, "seed": 1}
    whole = server.complete(**body)
    events = server.events("/v1/completions", **body)
    assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]
    assert whole["usage"]["prompt_tokens"] == len(server.ask("POST", "/tokenize", {"prompt": "one two"})[2]["tokens"])
    server.stop()
    (folder / "tokenizer.model").write_bytes(b"no model")
    done = subprocess.run([str(BIN / "mmserve"), "--model", str(folder), "--plain", "--listen", "127.0.0.1:0"],
                          capture_output=True, text=True, timeout=limit(60), check=False)
    assert done.returncode == 1 and "tokenizer.model: it is no model of SentencePiece" in done.stderr, done.stderr


def test_quickstart():
    """
    tools/quickstart --serve as somebody uses it: what it prints can be typed, a burst for one model borrows from the
    other, which answers as before, and Ctrl-C leaves nothing.
    """
    env = {**os.environ, "MM_BUILD": str(BUILD)}
    shown = subprocess.Popen([str(TOP / "tools/quickstart"), "--serve", "--no-install", "--no-build", "--port", "0"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        text = "".join(read_until(shown, "Ctrl-C here ends everything.", 60))
        shell = re.findall(r"^curl .*?\n.*?'$", text, re.M)
        assert len(shell) == 2
        first = [bash(line, env) for line in shell]
        assert json.loads(first[0])["usage"]["completion_tokens"] <= 16 and first[1].endswith("data: [DONE]\n\n")
        burst = subprocess.Popen(["bash", "-c", re.search(r"^for i in .*?& done$", text, re.M | re.S)[0] + "; wait"], env=env)
        watch = re.search(r"^\S+mmctl .* status$", text, re.M)[0]
        wait_until(lambda: (found := re.search(r"^layers away: (\d+)", bash(watch, env), re.M)) and int(found[1]) > 0, 60,
                   "layers to be lent")
        other = bash(shell[1].replace('"stream"', '"temperature": 0, "stream"'), env)
        assert other.endswith("data: [DONE]\n\n")
        shown.send_signal(signal.SIGINT)
        _, errors = shown.communicate(timeout=limit(60))
        assert shown.returncode == 0 and errors.endswith("stopped: no process, socket or file is left\n"), errors
        burst.wait(timeout=limit(60))
        assert not os.path.exists(re.search(r"--dir (\S+)/run status", text)[1])
    finally:
        shown.kill()
        shown.wait()


def bash(line, env):
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=limit(60), check=True, env=env,
                          cwd=TOP).stdout


def test_tokenizers(root, listen, model_dirs, tmp_path):
    """Those that mmserve cannot read are refused by name, and ids are served all the same."""
    folder = tmp_path / "m"
    folder.mkdir()
    for file in os.listdir(model_dirs[0]):
        os.symlink(model_dirs[0] / file, folder / file)
    os.unlink(folder / "tokenizer.json")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {}}}))
    server = listen("m", folder, extra=SHORT)
    assert "is of type BPE" in server.text
    status, _, said = server.ask("POST", "/v1/completions", {"prompt": "t1"})
    assert status == 400 and "is of type BPE, and mmserve reads WordLevel" in said["error"]["message"]
    choice = server.complete(prompt=[1], max_tokens=3, **GREEDY)["choices"][0]
    assert choice["text"] == "" and len(choice["token_ids"]) == 3
    server.stop()
    (folder / "tokenizer.json").write_text("{")
    done = subprocess.run([str(BIN / "mmserve"), "--model", str(folder), "--plain", "--listen", "127.0.0.1:0"],
                          capture_output=True, text=True, timeout=limit(60), check=False)
    assert done.returncode == 1 and "tokenizer.json: line 1: " in done.stderr, done.stderr
