"""A store_peer: one end of a TCP store as a process of its own, one line at a time."""

import os
import subprocess

PROGRAM = os.environ.get("STORE_PEER", "")
TOKEN = "7" * 64


class Peer:
    """`start` runs a program as subprocess.Popen does."""

    def __init__(self, *args, token=TOKEN, start=subprocess.Popen):
        environment = {key: value for key, value in os.environ.items() if key != "DSC_TOKEN"}
        environment |= {"DSC_TOKEN": token} if token else {}
        pipe = subprocess.PIPE
        self.process = start([PROGRAM, *map(str, args)], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line):
        self.say(line)
        return self.answer()

    def answer(self):
        """(seconds, code, text)"""
        us, code, text = (self.hear() + " ").split(" ", 2)
        return int(us) / 1e6, code, text.strip()

    def counts(self):
        """Of a server."""
        self.say("")
        words = self.hear().split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def end(self):
        self.process.communicate(timeout=20)
