"""Python's websockets on the sockets of a command and on the agent's events, over mutual TLS."""

import asyncio
import http.client
import json
import os
import socket as sockets
import ssl

from websockets.asyncio.client import unix_connect

from report import case, same

AGENT = os.environ["MOTE_AGENT_SOCKET"]
LIMIT = 10


def context():
    made = ssl.create_default_context(cafile=os.environ["MOTE_AGENT_CRT"])
    made.verify_flags |= 0x80000  # X509_V_FLAG_PARTIAL_CHAIN: the agent's certificate signs nothing
    made.load_cert_chain(os.environ["MOTE_CLIENT_CRT"], os.environ["MOTE_CLIENT_KEY"])
    return made


def ask(method, path, body=None):
    plain = sockets.socket(sockets.AF_UNIX)
    plain.connect(AGENT)
    connection = http.client.HTTPConnection("unspecified")
    connection.sock = context().wrap_socket(plain, server_hostname="unspecified")
    connection.request(method, path, json.dumps(body) if body else None)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def connect(path):
    return unix_connect(AGENT, f"wss://unspecified{path}", ssl=context(), server_hostname="unspecified", max_size=None)


def start(command, **more):
    answer = ask("POST", "/1.0/exec", {"command": command, "wait-for-websocket": True, **more})
    operation = answer["metadata"]
    path = f"/1.0/operations/{operation['id']}"
    return path, {fd: f"{path}/websocket?secret={secret}" for fd, secret in operation["metadata"]["fds"].items()}


async def output(socket):
    """Reads the stream up to the barrier, an empty text."""
    text = b""
    while True:
        message = await asyncio.wait_for(socket.recv(), LIMIT)
        if isinstance(message, str):
            return text
        text += message


async def echo(size, part):
    _, places = start(["cat"])
    async with connect(places["control"]), connect(places["0"]) as given, connect(places["1"]) as out, connect(places["2"]):
        text = os.urandom(size)

        async def give():
            for at in range(0, size, part):
                await given.send(text[at : at + part])
            await given.send("")

        _, seen = await asyncio.gather(give(), output(out))
        return same(seen == text, True)


async def fragments():
    """Sends one message in many frames."""
    _, places = start(["cat"])
    async with connect(places["control"]), connect(places["0"]) as given, connect(places["1"]) as out, connect(places["2"]):
        await given.send([b"one ", b"two ", b"", b"three"])
        await given.send("")
        return same(await output(out), b"one two three")


async def code():
    path, places = start(["sh", "-c", "exit 7"])
    async with connect(places["control"]), connect(places["0"]), connect(places["1"]), connect(places["2"]):
        pass
    seen = ask("GET", path + "/wait")
    return same(seen["metadata"]["metadata"]["return"], 7)


async def order():
    """Connects the sockets in another order."""
    _, places = start(["echo", "text"])
    async with connect(places["2"]), connect(places["1"]) as out, connect(places["0"]), connect(places["control"]):
        return same(await output(out), b"text\n")


async def terminal():
    _, places = start(["sh"], interactive=True, width=80, height=25)
    async with connect(places["control"]), connect(places["0"]) as both:
        await both.send(b"echo $((6 * 7)) seen; exit\n")
        seen = await output(both)
        return None if b"42 seen" in seen else seen


async def heard():
    async with connect("/1.0/events?type=operation") as listener:
        task = asyncio.create_task(code())
        while True:
            event = json.loads(await asyncio.wait_for(listener.recv(), LIMIT))
            if event["metadata"]["status"] == "Success" or event["metadata"]["status_code"] >= 400:
                break
        return await task or same(event["metadata"]["metadata"]["return"], 7)


def run(name, coroutine, *arguments):
    case(name, lambda: asyncio.run(coroutine(*arguments)))


run("1 MB through cat in messages of 100,000 bytes", echo, 1_000_000, 100_000)
run("1 MB through cat in messages of 100 bytes", echo, 1_000_000, 100)
run("one message of 4 MB", echo, 4_000_000, 4_000_000)
run("a message in fragments is one", fragments)
run("the exit code, by /wait", code)
run("the sockets in another order", order)
run("a shell in a terminal", terminal)
run("an exit code, by events", heard)
