"""Origins: processes that are started for one measurement and ended after it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request

from systems import BUILT, end_process, end_with_parent, wait_until, work_folder


class Origin:
    """The project's scriptable origin, as a process of its own (Tests/test-origin).

    files: path (without the leading slash) -> size. Each folder has an index page, which is how rclone lists.
    media: path -> the file whose bytes are sent.
    A new connection costs `latency` too, as a handshake would; so does each request."""
    enter = ()
    authority = None

    def __init__(self, files, latency=0.0, line=None, connection=None, media=None):
        media = media or {}
        self.files = dict(files) | {path: os.path.getsize(source) for path, source in media.items()}
        self.folder = work_folder("origin")
        self._write_indexes()
        for path, source in media.items():
            os.link(source, os.path.join(self.folder, path))
        arguments = [os.path.join(BUILT, "test-origin"), "--folder", f"path={self.folder},at=/"]
        arguments += ["--set", f"latency={latency},accept-delay={latency},line-rate={line or 'none'},"
                      f"connection-rate={connection or 'none'}"]
        for path, size in files.items():
            arguments += ["--resource", f"path=/{path},size={size}"]
        self.arguments = arguments
        self._start()

    def _start(self, *more):
        self.process = subprocess.Popen([*self.arguments, *more], stdout=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: end_with_parent(signal.SIGTERM))
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("the origin did not start")

    def die(self):
        """As a crash."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def come_back(self):
        """At the same address."""
        self._start("--port", str(urllib.parse.urlsplit(self.url).port))

    def add_to_index(self, path, size):
        """Lists a file that the command "resource" made."""
        self.files[path] = size
        self._write_indexes()

    def _write_indexes(self):
        listed = {"": set()}
        for path in self.files:
            parts = path.split("/")
            for depth in range(len(parts)):
                folder = "/".join(parts[:depth])
                is_folder = depth < len(parts) - 1
                listed.setdefault(folder, set()).add(parts[depth] + ("/" if is_folder else ""))
        for folder, names in listed.items():
            os.makedirs(os.path.join(self.folder, folder), exist_ok=True)
            with open(os.path.join(self.folder, folder, "index.html"), "w") as file:
                file.write("<html><body>\n")
                for name in sorted(names):
                    file.write(f'<a href="{urllib.parse.quote(name)}">{name}</a>\n')
                file.write("</body></html>\n")

    def command(self, name, **values):
        query = urllib.parse.urlencode({key.replace("_", "-"): value for key, value in values.items()})
        request = urllib.request.Request(f"{self.url}/.origin/{name}?{query}", method="POST", data=b"")
        urllib.request.urlopen(request, timeout=30).read()

    def totals(self):
        """connections, requests, bytesSent, … since the start or the last reset-log."""
        with urllib.request.urlopen(f"{self.url}/.origin/totals", timeout=30) as answer:
            return json.load(answer)

    def log(self):
        with urllib.request.urlopen(f"{self.url}/.origin/log", timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        end_process(self.process)
        self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Nginx:
    """nginx that serves a folder of plain files with sendfile: the fast origin. Lists its folders (autoindex).

    With a `line` (lines.py) it speaks TLS at the far end of it. A client's command then begins with `enter` and trusts
    `authority`."""

    def __init__(self, root, line=None, http2=False):
        self.folder = work_folder("nginx")
        self.enter, self.authority, self.http2 = (), None, http2
        address, encryption, command = "127.0.0.1", "", []
        if line:
            address, self.enter, command = line.SERVER, line.in_client, line.in_server
            key, self.authority = certificate(self.folder, address)
            # TLS 1.3 too, as Debian's configuration has it: nginx's own default ends at 1.2.
            encryption = (f"{' http2' if http2 else ''} ssl; ssl_certificate {self.authority}; "
                          f"ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3")
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        temporary = "\n".join(f"{kind}_temp_path {self.folder}/{kind};"
                              for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        user = "user root;" if os.geteuid() == 0 else ""
        configuration = f"""{user}
daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error.log;
events {{ worker_connections 1024; }}
http {{ {temporary}
  default_type application/octet-stream; access_log {self.folder}/access.log; sendfile on; tcp_nodelay on;
  keepalive_requests 1000000;
  server {{ listen {address}:{port}{encryption}; root "{root}"; autoindex on; }} }}
"""
        path = os.path.join(self.folder, "nginx.conf")
        with open(path, "w") as file:
            file.write(configuration)
        program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
        self.process = subprocess.Popen([*command, program, "-c", path, "-e", f"{self.folder}/error.log"])
        self.url = f"{'https' if line else 'http'}://{address}:{port}"
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
        self.files = {os.path.relpath(path, root): os.path.getsize(path) for path in paths}
        # It writes its number once it listens.
        pid = os.path.join(self.folder, "pid")
        wait_until("nginx that listens", lambda: os.path.exists(pid) or self.process.poll() is not None)
        if self.process.poll() is not None:
            with open(f"{self.folder}/error.log") as file:
                raise RuntimeError("nginx: " + file.read())

    def underway(self):
        """Bytes in its sockets: not sent yet, or sent and not acknowledged."""
        with open(f"/proc/{self.process.pid}/net/tcp") as file:
            sockets = [line.split() for line in file][1:]
        return sum(int(fields[4].split(":")[0], 16) for fields in sockets if fields[3] == "01")

    def stop(self):
        end_process(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)


def certificate(folder, address):
    """A new key and a certificate for that address, signed by itself: the paths of both."""
    key, path = os.path.join(folder, "key.pem"), os.path.join(folder, "certificate.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", path, "-days", "2", "-subj", f"/CN={address}",
                    "-addext", f"subjectAltName=IP:{address}"], check=True, capture_output=True)
    return key, path


@contextlib.contextmanager
def serving(*arguments, **values):
    origin = Origin(*arguments, **values)
    try:
        yield origin
    finally:
        origin.stop()
