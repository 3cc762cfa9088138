"""A throwaway node beside the machine's own, and all that can be seen of a node from the machine."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "cluster"
sys.path.insert(0, str(CLUSTER))

from onenode.base import CACHE  # noqa: E402, F401
from onenode.identity import key_of  # noqa: E402
from onenode.parts import PARTS  # noqa: E402

NAMES = [part.name for part in PARTS]
# What kubelet and the rest would set on the host, and the folders that they would make there.
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
)
FOLDERS = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/etc/cni/net.d")
# Below these a node could mount something, beside its own folder.
MOUNTED = "/run/(?!containers/)|/var/lib/(kubelet|cni|containerd)/|/var/log/|/proc/|/sys/"


def wait_for(condition, seconds, what):
    """Return the first true result of `condition()`; fail with `what()` after so many seconds."""
    until = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < until, f"after {seconds} s: {what()}"
        time.sleep(0.05)
    return result


def run(*argv, code=0, env=None, stdin=None):
    """Run a program and return what it says, errors too; its exit code must be `code`, any if that is None."""
    words = [str(word) for word in argv]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, env=env, input=stdin, text=True, timeout=300, **both)
    text = f"$ {' '.join(words)}\n{done.stdout}-> {done.returncode}"
    assert code is None or done.returncode == code, text
    assert "Traceback" not in done.stdout, text
    return done.stdout


def refusal(*argv, env=None):
    """Run a program that must refuse, in one line; return it."""
    said = run(*argv, code=1, env=env)
    assert said.count("\n") == 1, said
    return said


class Node:
    """A node with a folder of its own below `base`; it uses the programs that are built already."""

    def __init__(self, base):
        # The space in the path is what people have too.
        homes = (base.resolve() / f"a node {number}" for number in count())
        self.home = next(home for home in homes if not interface(Node.name_of(home)).exists())
        self.name = Node.name_of(self.home)
        self.state = Node.state_of(self.home)
        self.env = Node.env_of(self.home)

    @staticmethod
    def state_of(home):
        return home / "deepspeed-job" / "cluster"

    @staticmethod
    def name_of(home):
        return f"dsjob{key_of(Node.state_of(home))}"

    @staticmethod
    def env_of(home):
        return {
            **os.environ,
            "XDG_STATE_HOME": str(home),
            "KUBECONFIG": str(Node.state_of(home) / "kubeconfig"),
        }

    def __call__(self, command, *args, **more):
        """Run a command of cluster/, on a machine behind a proxy that does not know the node."""
        proxy = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
        return run(CLUSTER / command, *args, env={**self.env, **proxy}, **more)

    def kubectl(self, *args, **more):
        return run("kubectl", *args, env=self.env, **more)

    def get(self, *args):
        return json.loads(self.kubectl("get", *args, "--output=json"))

    def status(self, code=0):
        """{part: (pid, what `status` says of it)}."""
        rows = (line.split(maxsplit=2) for line in self("status", code=code).splitlines())
        return {row[0]: (row[1], row[2]) for row in rows if row[0] in NAMES}

    def processes(self):
        """The pids of all that runs in the node's cgroup or in a namespace of one that does."""
        everyone = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        ours = {pid for pid in everyone if f"/{self.name}/" in read(f"/proc/{pid}/cgroup") and runs(pid)}
        spaces = namespaces(ours) - namespaces({os.getpid()})
        return ours | {pid for pid in everyone if namespaces({pid}) & spaces}

    def left(self, before):
        """The traces that are new since `before` and can be of this node; other nodes, and mounts elsewhere, come and go."""
        others = re.compile(rf"\bdsjob\d|\b198\.18\.|/deepspeed-job/cluster/|^mount \S+ (?!{MOUNTED})")
        address = self.name.replace("dsjob", "198.18.")
        ours = re.compile(rf"\b{self.name}\b|\b{address}\.|{re.escape(escaped(self.home))}/")
        return sorted(line for line in traces() - before if ours.search(line) or not others.search(line))


def escaped(path):
    """A path as /proc/mounts has it."""
    return str(path).replace(" ", r"\040")


def interface(name):
    """Where the kernel shows a network interface; all of them for an empty name."""
    return Path("/sys/class/net") / name


def runs(pid):
    """Whether a process is there and not dead, even if nobody has asked for its exit code yet."""
    return read(f"/proc/{pid}/stat").rpartition(") ")[2][:1] not in ("", "Z", "X")


def namespaces(pids):
    """The network and mount namespaces of processes."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            found.update(Path(f"/proc/{pid}/ns/{kind}").readlink() for kind in ("net", "mnt"))
    return found


def traces():
    """A line for each thing on this machine of the kinds that a node makes, wherever it makes them."""
    lines = {f"interface {path.name}" for path in interface("").iterdir()}
    lines |= {f"mount {line}" for line in read("/proc/mounts").splitlines()}
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    lines |= {f"cgroup {folder}" for folder in Path("/sys/fs/cgroup").glob("*/" if unified else "*/*/")}
    lines |= {f"folder {folder}" for folder in FOLDERS if Path(folder).exists()}
    lines |= {f"setting {name} = {read(f'/proc/sys/{name}')}" for name in SETTINGS}
    for program in ("iptables-save", "ip6tables-save", "ip route show table all", "ip rule", "ip netns"):
        # Comments have the time, and rules their counters.
        said = re.sub(r"^#.*|\[\d+:\d+\]", "", run(*program.split(), code=None), flags=re.MULTILINE)
        lines |= {f"{program}: {line}" for line in said.splitlines()}
    return lines


def read(path):
    """A file's text; empty if it is gone or forbidden."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
