"""The programs of a fake sandbox, and a very small shell: what tests and examples need, not what a real one can."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import join

import anyio

from harness.errors import PathMissing, TransferFailed
from harness.sandbox.fake.tree import Kind, Node, Tree

NOT_EXECUTABLE, NOT_FOUND = 126, 127
CHUNK_BYTES = 32 * 1024

Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Process:
    """What a program gets. It writes with ``out`` and ``err`` and returns its exit status."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    uid: int
    gid: int
    stdin: bytes
    tree: Tree
    out: Write
    err: Write
    programs: Mapping[str, Program]

    def path(self, name: str) -> str:
        return join(self.cwd, name)


Program = Callable[[Process], Awaitable[int]]


async def run(process: Process) -> int:
    """Find the program and run it, as a shell would: 127 when there is none, 126 when it can't be executed."""
    name = process.argv[0]
    if program := process.programs.get(name) or process.programs.get(name.rpartition("/")[2]):
        return await program(process)
    node = process.tree.find(process.path(name)) if "/" in name else None
    if node is None:
        await process.err(f"sh: {name}: not found\n".encode())
        return NOT_FOUND
    if node.kind is not Kind.FILE or not node.mode & 0o111:
        await process.err(f"sh: {name}: Permission denied\n".encode())
        return NOT_EXECUTABLE
    return await _script(process, node.data.decode("utf-8", "replace"))


async def _script(process: Process, script: str) -> int:
    """Commands separated by newlines, ``;`` and ``&&``, each with at most one redirection; ``set -e``, ``exit`` and ``cd``.

    A program that is registered under the whole script's text is run instead.
    """
    if program := process.programs.get(script.strip()):
        return await program(process)
    status, strict, cwd = 0, False, process.cwd
    for line in re.split(r"[;\n]", script):
        for part in line.split("&&"):
            words = shlex.split(part, comments=True)
            if not words:
                continue
            words = [re.sub(r"\$(\w+)", lambda found: process.env.get(found.group(1), ""), word) for word in words]
            if words[0] == "exit":
                return int(words[1]) if len(words) > 1 else status
            if words[0] == "set":
                strict = strict or "-e" in words[1] or "e" in words[1].lstrip("-")
                continue
            if words[0] == "cd":
                cwd = join(cwd, words[1])
                continue
            status = await _redirected(replace(process, argv=words, cwd=cwd))
            if status:
                break
        if status and strict:
            return status
    return status


async def _redirected(process: Process) -> int:
    words = list(process.argv)
    if words[-1] == ">&2":
        return await run(replace(process, argv=words[:-1], out=process.err))
    if len(words) > 2 and words[-2] in (">", ">>"):
        written = bytearray()

        async def keep(data: bytes) -> None:
            written.extend(data)

        target = process.path(words[-1])
        node = process.tree.find(target)
        before = node.data if node and words[-2] == ">>" else b""
        status = await run(replace(process, argv=words[:-2], out=keep))
        process.tree.write(target, before + bytes(written), uid=process.uid, gid=process.gid)
        return status
    return await run(process)


async def _shell(process: Process) -> int:
    arguments = [word for word in process.argv[1:] if word not in ("-e", "-l", "--login")]
    if arguments and arguments[0].startswith("-") and arguments[0].endswith("c"):
        return await _script(process, arguments[1])
    if arguments:
        node = process.tree.find(process.path(arguments[0]))
        if node is None:
            await process.err(f"sh: {arguments[0]}: No such file or directory\n".encode())
            return NOT_FOUND
        return await _script(process, node.data.decode("utf-8", "replace"))
    return await _script(process, process.stdin.decode("utf-8", "replace"))


async def _true(process: Process) -> int:
    return 0


async def _false(process: Process) -> int:
    return 1


async def _echo(process: Process) -> int:
    await process.out((" ".join(process.argv[1:]) + "\n").encode())
    return 0


async def _printf(process: Process) -> int:
    """The format alone, with its octal escapes."""
    text = re.sub(r"\\([0-7]{1,3})", lambda found: chr(int(found.group(1), 8)), process.argv[1])
    await process.out(text.replace("\\n", "\n").encode("latin-1"))
    return 0


async def _cat(process: Process) -> int:
    try:
        for name in process.argv[1:]:
            await process.out(process.tree.read(process.path(name)))
    except PathMissing as error:
        await process.err(f"cat: {error}\n".encode())
        return 1
    if not process.argv[1:]:
        await process.out(process.stdin)
    return 0


async def _pwd(process: Process) -> int:
    await process.out(f"{process.cwd}\n".encode())
    return 0


async def _id(process: Process) -> int:
    await process.out(f"{process.gid if '-g' in process.argv else process.uid}\n".encode())
    return 0


async def _printenv(process: Process) -> int:
    value = process.env.get(process.argv[1])
    if value is None:
        return 1
    await process.out(f"{value}\n".encode())
    return 0


async def _sleep(process: Process) -> int:
    value = process.argv[1]
    await anyio.sleep(math.inf if value in ("infinity", "inf") else float(value))
    return 0


async def _head(process: Process) -> int:
    """Only ``head -c N /dev/zero``: a flood of output."""
    left = int(process.argv[2])
    while left:
        piece = bytes(min(left, CHUNK_BYTES))
        left -= len(piece)
        await process.out(piece)
    return 0


async def _mkdir(process: Process) -> int:
    try:
        for name in (word for word in process.argv[1:] if not word.startswith("-")):
            process.tree.folder(process.path(name))
    except TransferFailed as error:
        await process.err(f"mkdir: {error}\n".encode())
        return 1
    return 0


async def _touch(process: Process) -> int:
    for name in process.argv[1:]:
        if process.tree.find(process.path(name)) is None:
            process.tree.write(process.path(name), b"", uid=process.uid, gid=process.gid)
    return 0


async def _rm(process: Process) -> int:
    for name in (word for word in process.argv[1:] if not word.startswith("-")):
        process.tree.remove(process.path(name))
    return 0


async def _ln(process: Process) -> int:
    target, name = process.argv[-2:]
    process.tree.place(process.path(name), Node(Kind.LINK, target=target, mode=0o777))
    return 0


PROGRAMS: Mapping[str, Program] = {
    "bash": _shell,
    "cat": _cat,
    "echo": _echo,
    "false": _false,
    "head": _head,
    "id": _id,
    "ln": _ln,
    "mkdir": _mkdir,
    "printenv": _printenv,
    "printf": _printf,
    "pwd": _pwd,
    "rm": _rm,
    "sh": _shell,
    "sleep": _sleep,
    "touch": _touch,
    "true": _true,
}
