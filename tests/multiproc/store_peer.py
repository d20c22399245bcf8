"""A server or a client of a TCP store in a separate process (see store_peer.cpp), driven line by line."""

import os
import subprocess

PROGRAM = os.environ.get("STORE_PEER", "")
TOKEN = "7" * 64


class Peer:
    """Starts the process. `start` runs a program like subprocess.Popen."""

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
        """Returns (seconds, code, text)."""
        us, code, text = (self.hear() + " ").split(" ", 2)
        return int(us) / 1e6, code, text.strip()

    def counts(self):
        """Returns the counts of a server."""
        self.say("")
        words = self.hear().split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def end(self):
        self.process.communicate(timeout=20)
