"""Simulated hosts that are processes of the test. Their commands are not descendants of dscrun, only pipes connect
them.

As a program, `fake_ssh.py SOCKET HOST COMMAND`, it is the ssh to such a host: it copies between its own standard
streams and those of the command. When it dies, the command sees the end of its input.
"""

import array
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import threading

# the environment of a new login on the host
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/"}


class Hosts:
    """Serves connections until closed. `commands` collects (host, command) of each connection.

    With `silent` a command does not see that its connection has ended, as in a network that was cut.
    """

    def __init__(self, folder):
        self.commands = []
        self.silent = False
        self.path = str(folder / "ssh.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.threads = []
        threading.Thread(target=self.accept, daemon=True).start()

    def ssh_command(self):
        return shlex.join([sys.executable, str(pathlib.Path(__file__).resolve()), self.path])

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, connection):
        with connection:
            host, command = connection.recv(65536).decode().split("\0")
            self.commands.append((host, command))
            pipe = subprocess.PIPE
            shell = ["sh", "-c", command]
            process = subprocess.Popen(
                shell, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", env=ENVIRONMENT, start_new_session=True
            )
            ends = [end.fileno() for end in (process.stdin, process.stdout, process.stderr)]
            connection.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ends))])
            if self.silent:
                process.wait()
            for end in (process.stdin, process.stdout, process.stderr):
                end.close()
            code = process.wait()
            try:
                connection.sendall(str(code if code >= 0 else 128 - code).encode())
            except OSError:
                pass


def copy(source, target):
    try:
        while data := os.read(source, 65536):
            while data:
                data = data[os.write(target, data) :]
    except BrokenPipeError:
        pass
    os.close(target)


def main(path, host, command):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(f"{host}\0{command}".encode())
    descriptors = array.array("i")
    _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(3 * descriptors.itemsize))
    descriptors.frombytes(ancillary[0][2][: 3 * descriptors.itemsize])
    into, out, err = descriptors
    threading.Thread(target=copy, args=(0, into), daemon=True).start()
    outputs = [threading.Thread(target=copy, args=pair) for pair in ((out, 1), (err, 2))]
    for thread in outputs:
        thread.start()
    for thread in outputs:
        thread.join()
    os._exit(int(connection.recv(16) or b"255"))


if __name__ == "__main__":
    main(*sys.argv[1:])
