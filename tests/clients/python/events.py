"""Python's websockets on devlxd's events; violations of RFC 6455 must be answered with 1002."""

import asyncio
import json

import websockets
from websockets.asyncio.client import unix_connect

from report import DEVLXD, case, poke, same

LIMIT = 10


def connect():
    return unix_connect(DEVLXD, "ws://any/1.0/events", compression=None, ping_interval=None)


async def event():
    async with connect() as socket:
        poke("user.websockets")
        while True:
            seen = json.loads(await asyncio.wait_for(socket.recv(), LIMIT))
            if seen["metadata"].get("key") == "user.websockets":
                return same(seen["type"], "config")


async def ping():
    async with connect() as socket:
        pong = await socket.ping(b"x" * 125)
        await asyncio.wait_for(pong, LIMIT)


async def closes():
    async with connect() as socket:
        await asyncio.wait_for(socket.close(4321, "done"), LIMIT)
        return same(socket.close_code, 4321)


async def compressed():
    """Offers compression, as by default; the server need not accept it."""
    async with unix_connect(DEVLXD, "ws://any/1.0/events") as socket:
        await asyncio.wait_for(await socket.ping(), LIMIT)


async def violates(frame):
    """Sends a frame without the library, and checks what the library reports about the close."""
    async with connect() as socket:
        socket.transport.write(frame)
        try:
            while True:
                await asyncio.wait_for(socket.recv(), LIMIT)
        except websockets.exceptions.ConnectionClosed as closed:
            received = closed.rcvd
            return same(received.code if received else None, 1002)


def masked(*head):
    return bytes(head) + bytes(4)


def run(name, coroutine, *arguments):
    case(name, lambda: asyncio.run(coroutine(*arguments)))


run("an event arrives", event)
run("a ping of 125 bytes is answered", ping)
run("a close is echoed with its code", closes)
run("an offer of compression does no harm", compressed)
run("a frame without a mask is answered by 1002", violates, b"\x81\x02hi")
run("a continuation of nothing is answered by 1002", violates, masked(0x80, 0x80))
run("a ping with a long-form length is answered by 1002", violates, masked(0x89, 0xFE, 0, 5) + b"hello")
run("a close of one byte is answered by 1002", violates, masked(0x88, 0x81) + b"x")
