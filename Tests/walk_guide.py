#!/usr/bin/python3
"""walk_guide.py [--write] BUILT DOCUMENT...: runs the commands that documents show, as they stand there, and compares
what they print with what the documents say. BUILT is a folder with the program, or "installed": that of this machine.

A block of a document that begins with a line `$ COMMAND` is a terminal: the lines below a command are its output. The
commands of all documents run in one shell, in order, as the user anna; a block of `# COMMAND` runs as root, and is left
out where the walk is not root. `…` in an output stands for any text, alone on a line for any lines. Numbers that differ
from run to run (of processes, rates, times) are compared as such. --write puts what the commands printed into the
documents, but for outputs with `…`.

All of it happens in namespaces of its own: mounts, processes and network (there is loopback alone; the hosts of the
documents are an nginx). What the commands write is in memory, above what the machine has. Nothing is left behind.
"""
import difflib
import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "Fixtures/guide-feed.xml")) as file:
    FEED = file.read()
# A folder that every Debian has and that has nothing of use here; in the namespace it is memory.
SCRATCH = "/media"
HOSTS = ["media.example.org", "mirror.example.org", "podcast.example.org", "nas.example.org"]
USER = "anna"
INSTALLED = "installed"
# How long a command may take, in seconds.
PATIENCE = 120


def main():
    writes = "--write" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--write", "--within")]
    if "--within" in sys.argv:
        sys.exit(walk(arguments[0], arguments[1:], writes))
    paths = [argument if argument == INSTALLED else os.path.abspath(argument) for argument in arguments]
    sys.exit(within(os.path.abspath(__file__), ["--write"] * writes + paths))


def within(program, arguments):
    """The exit status of a program that runs in namespaces of its own, with `--within`; no process survives it."""
    spaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.getuid() != 0:
        spaces += ["--user", "--map-root-user"]
    return subprocess.run(spaces + [sys.executable, program, "--within", *arguments]).returncode


# The machine of the documents


def overlay(folder):
    """What is written below `folder` from now on stays in memory."""
    upper, work = (f"{SCRATCH}/layers/{folder.strip('/').replace('/', '-')}-{part}" for part in ("upper", "work"))
    os.makedirs(upper)
    os.makedirs(work)
    mount("-t", "overlay", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", folder)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def prepare(built):
    is_root = is_real_root()
    # Larger than any memory: how much is free decides the store's limit, and shows.
    mount("-t", "tmpfs", "-o", "mode=755,size=200g", "scratch", SCRATCH)
    for folder in ["/etc", "/srv", "/var/lib", "/usr/sbin", "/usr/local"] if is_root else []:
        overlay(folder)
    # A home beside those that are there, which may have the toolchain.
    os.makedirs(f"{SCRATCH}/home/{USER}")
    for name in set(os.listdir("/home")) - {USER}:
        os.makedirs(f"{SCRATCH}/home/{name}")
        mount("--rbind", f"/home/{name}", f"{SCRATCH}/home/{name}")
    mount("--rbind", f"{SCRATCH}/home", "/home")
    if built != INSTALLED:
        provide(built, is_root)
    if os.path.isdir("/var/lib/mediafs"):
        # Mounts that root made here before are none of the walk's.
        mount("-t", "tmpfs", "-o", "mode=700", "mounts", "/var/lib/mediafs")
    if is_root:
        # On most machines every user may open it.
        os.mknod(f"{SCRATCH}/fuse", stat.S_IFCHR, os.makedev(10, 229))
        os.chmod(f"{SCRATCH}/fuse", 0o666)
        mount("--bind", f"{SCRATCH}/fuse", "/dev/fuse")
    loopback()
    put("/etc/hosts", f"127.0.0.1 localhost {' '.join(HOSTS)}\n")
    # In a namespace of a user's there is one id, 0: it is anna's.
    put("/etc/passwd", f"{USER}:x:{user_id()}:{user_id()}::/home/{USER}:/bin/bash\n" + text("/etc/passwd"))
    put("/etc/group", f"{USER}:x:{user_id()}:\n" + text("/etc/group"))
    os.makedirs(f"/home/{USER}/.config/mpv")
    with open(f"/home/{USER}/.config/mpv/mpv.conf", "w") as file:
        # A machine without a screen or loudspeakers; a second of the film is enough.
        file.write("vo=null\nao=null\nreally-quiet=yes\nlength=1\n")
    if is_root:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", f"/home/{USER}"], check=True)
    serve()


def provide(built, is_root):
    """Puts the program into PATH."""
    # Where it is may be closed to others.
    os.makedirs(f"{SCRATCH}/built")
    mount("--bind", built, f"{SCRATCH}/built")
    os.makedirs(f"{SCRATCH}/bin")
    os.symlink(f"{SCRATCH}/built/mediafs", f"{SCRATCH}/bin/mediafs")
    if is_root:
        os.symlink(f"{SCRATCH}/built/mediafs", "/usr/local/bin/mediafs")
        os.symlink(f"{SCRATCH}/built/mount-helper", "/usr/sbin/mount.mediafs")


def text(path):
    with open(path) as file:
        return file.read()


def put(path, words):
    """Has a file of the machine say this here. Another user than root can only cover it."""
    if not is_real_root():
        own = f"{SCRATCH}/{os.path.basename(path)}"
        with open(own, "w") as file:
            file.write(words)
        return mount("--bind", own, path)
    with open(path, "w") as file:
        file.write(words)


def user_id():
    return 4242 if is_real_root() else 0


def is_real_root():
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def loopback():
    """Turns the network's only interface on: SIOCSIFFLAGS with IFF_UP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh14x", b"lo", 1))


def serve():
    """An nginx with the documents' hosts, and a certificate that this machine trusts."""
    folder = f"{SCRATCH}/origin"
    files = f"{folder}/files"
    os.makedirs(f"{files}/films")
    os.makedirs(f"{files}/talks")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ",".join(f"DNS:{host}" for host in HOSTS)
    run("openssl", "req", "-x509", *key, "-keyout", f"{folder}/key", "-out", f"{folder}/certificate", "-days", "9",
        "-subj", "/CN=example.org", "-addext", f"subjectAltName={names}")
    trusted = "/etc/ssl/certs/ca-certificates.crt"
    put(trusted, text(trusted) + text(f"{folder}/certificate"))
    film(f"{files}/talk.mp4", 20, 5_000_000)
    for number in (1, 2, 3):
        film(f"{files}/films/part {number}.mp4", 3, 1_000_000)
    shutil.copy(f"{files}/films/part 1.mp4", f"{files}/talks/opening.mp4")
    shutil.copy(f"{files}/films/part 2.mp4", f"{files}/talks/closing.mp4")
    for name in ("4711", "episode-1.flac", "episode-2.flac"):
        song(f"{files}/{name}", 2_000_000)
    with open(f"{files}/urls.txt", "w") as file:
        file.write("https://media.example.org/talk.mp4\nhttps://media.example.org/films/\n")
    for path in subprocess.check_output(["find", files, "-type", "f"], text=True).splitlines():
        os.utime(path, (1767225600, 1767225600))
    with open(f"{files}/feed.xml", "w") as file:
        file.write(FEED)
    with open(f"{folder}/nginx.conf", "w") as file:
        file.write(CONFIGURATION.format(folder=folder, files=files, names=" ".join(HOSTS)))
    run("nginx", "-p", folder, "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log")


def film(path, seconds, size):
    """A film of exactly that size, whatever this ffmpeg makes of it: a box `free` at its end fills it up."""
    run("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", f"testsrc2=s=320x180:r=25:d={seconds}", "-f", "lavfi", "-i",
        f"sine=440:duration={seconds}", "-c:v", "mpeg4", "-b:v", f"{size * 4 // seconds}", "-c:a", "aac",
        "-movflags", "+faststart", path)
    fill(path, size, lambda rest: struct.pack(">I4s", rest, b"free"))


def song(path, size):
    run("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "sine=440:duration=20", "-c:a", "flac", "-f", "flac", path)
    fill(path, size, lambda rest: b"")


def fill(path, size, head):
    with open(path, "ab") as file:
        rest = size - file.tell()
        file.write(head(rest).ljust(rest, b"\0"))


CONFIGURATION = """
pid {folder}/nginx.pid;
worker_processes 1;
user root;
events {{ }}
http {{
  types {{ video/mp4 mp4; audio/flac flac; application/rss+xml xml; }}
  default_type application/octet-stream;
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 443 ssl;
    server_name {names};
    ssl_certificate {folder}/certificate;
    ssl_certificate_key {folder}/key;
    root {files};
    location = /4711 {{ default_type audio/flac; }}
    location ~ ^/(films|album)/ {{ autoindex on; }}
    location /signed/ {{
      # Links that end: the guide's program signs them.
      secure_link $arg_md5,$arg_expires;
      secure_link_md5 "$secure_link_expires$uri the key";
      if ($secure_link = "") {{ return 403; }}
      if ($secure_link = "0") {{ return 403; }}
      alias {files}/talks/;
    }}
  }}
}}
"""


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


# The walk


class Shell:
    """A shell that runs one command after the other."""

    def __init__(self, user):
        home = f"/home/{user}" if user != "root" else f"{SCRATCH}/root"
        os.makedirs(home, exist_ok=True)
        environment = {"PATH": f"{SCRATCH}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8",
                       "HOME": home, "USER": user, "TZ": "UTC"}
        as_user = []
        if user != "root" and is_real_root():
            as_user = ["setpriv", f"--reuid={user_id()}", f"--regid={user_id()}", "--init-groups"]
        self.process = subprocess.Popen([*as_user, "bash", "--norc", "--noprofile"], cwd=home, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command):
        """What the command prints. With an exit status other than 0, that too, as the last line."""
        end = f"the end of {time.monotonic_ns()}"
        # The newline that bash needs after a here-document; the output of a command that ends without one.
        self.process.stdin.write(f"{command}\necho \"$?:{end}\"\n".encode())
        self.process.stdin.flush()
        output = b""
        signal.alarm(PATIENCE)
        while not re.search(rb"(\d+):" + end.encode() + rb"\n$", output):
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise SystemExit(f"the shell has ended at: {command}\n{output.decode()}")
            output += more
        signal.alarm(0)
        said, status = re.fullmatch(rb"(.*?)(\d+):" + end.encode() + rb"\n", output, re.DOTALL).groups()
        return said.decode(errors="replace").rstrip("\n").split("\n") if said.strip() else [], int(status)


class Step:
    """A command of a document, and the lines of output below it."""

    def __init__(self, number, prompt, command):
        self.number, self.prompt, self.command, self.output = number, prompt, command, []


def steps(words):
    """The terminals of a document: lists of steps, each with the indentation of the block."""
    found = []
    block, here = None, None
    lines = words.split("\n")
    is_fenced = False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            is_fenced = not is_fenced
            block, here = [] if is_fenced else None, None
            continue
        if not is_fenced and not (line.startswith("    ") or (line == "" and block)):
            block, here = None, None
            continue
        content = line if is_fenced else line[4:]
        if not is_fenced and block is None:
            block = []
        if here:
            # A here-document belongs to its command.
            block[-1].command += "\n" + content
            if content == here:
                here = None
        elif block is not None and content[:2] in ("$ ", "# ") and (block or content[:2] == "$ " or is_fenced):
            step = Step(number, content[0], content[2:])
            block.append(step)
            found.append(step)
            if match := re.search(r"<<'?(\w+)'?", content):
                here = match.group(1)
        elif block and block[-1].command.endswith("\\") and content.startswith("    "):
            block[-1].command += "\n" + content
        elif block:
            block[-1].output.append(content)
    for step in found:
        while step.output and step.output[-1] == "":
            step.output.pop()
    return found


VARYING = [
    (r"process \d+", "process N"),
    (r"[\d.]+ [KMG]?i?B/s", "RATE"),
    (r"\b\d+:\d\d(:\d\d)?\b", "TIME"),
    (r"\b[\d.]+ ?(ms|s|min|h)\b", "DURATION"),
    (r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d +(TIME|20\d\d)", "DATE"),
    (r"\d+ connections?\b", "N connections"),
    (r"[\d.]+ GiB( +|\b.*\()default", "SIZE default"),
    (r"mediafs \d+\.\d+\.\d+( \([^)]*\))?", "mediafs VERSION"),
    (r"\s+", " "),
]


# Said of a file as long as its index is in memory: under load that may be over by then.
PASSING = r"\s+film: \S+ long"


def plain(line):
    for pattern, word in VARYING:
        line = re.sub(pattern, word, line)
    return line.strip()


def is_as_written(expected, printed):
    """Whether a command's output is what the document has: `…` stands for anything. Files that complete side by side may
    be told in another order."""
    expected, printed = ([line for line in lines if not re.fullmatch(PASSING, line)] for lines in (expected, printed))
    if not any("…" in line for line in expected):
        return sorted(map(plain, expected)) == sorted(map(plain, printed))
    pattern = []
    for line in expected:
        if line.strip() == "…":
            pattern.append(r"(?:[^\n]*\n)*")
        else:
            pattern.append("[^\n]*".join(re.escape(part) for part in plain(line).split("…")) + "\n")
    return re.fullmatch("".join(pattern), "".join(plain(line) + "\n" for line in printed)) is not None


def walk(built, documents, writes):
    # Opened before the namespace covers folders.
    documents = [open(document, "r+" if writes else "r") for document in documents]
    prepare(built)
    shells = {"$": Shell(USER)}
    if is_real_root():
        shells["#"] = Shell("root")
    failures = 0
    count = 0
    for document in documents:
        words = document.read()
        printed = []
        for step in steps(words):
            if step.prompt not in shells:
                continue
            started = time.monotonic()
            output, status = shells[step.prompt].run(step.command)
            count += 1
            if os.environ.get("WALK_TIMES"):
                print(f"{time.monotonic() - started:6.2f} s  {step.command.splitlines()[0]}")
            printed.append((step, output))
            # A command that fails is shown with `; echo $?`, or is a mistake of the document.
            if is_as_written(step.output, output) and status == 0 or writes:
                continue
            failures += 1
            print(f"{document.name}:{step.number + 1}: {step.command}")
            if status:
                print(f"  ended with status {status}")
            for line in difflib.unified_diff(step.output, output, "the document", "the command", lineterm=""):
                print("  " + line)
        if writes:
            write(document, words, printed)
    print(f"{count} commands, {failures} otherwise than written")
    for shell in shells.values():
        shell.process.stdin.close()
    return 1 if failures else 0


def write(document, words, printed):
    """Puts what was printed into the document, from its end to its start."""
    lines = words.split("\n")
    for step, output in reversed(printed):
        if any("…" in line for line in step.output) or is_as_written(step.output, output):
            continue
        start = step.number + step.command.count("\n") + 1
        indent = re.match(r" *", lines[step.number]).group()
        lines[start:start + len(step.output)] = [indent + line for line in output]
    document.seek(0)
    document.truncate()
    document.write("\n".join(lines))
    document.flush()


if __name__ == "__main__":
    main()
