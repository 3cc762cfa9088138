"""The configuration files of the parts, written anew at each start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from string import Template

from . import namespaces
from .base import CLUSTER_DIR, STATE, Problem, run
from .certificates import CA, PKI, encoded, kubeconfig_of
from .identity import DNS_SERVICE_IP, DOMAIN, NAME, NODE_IP, POD_CIDR

ETC = STATE / "etc"
VOLUMES = STATE / "volumes"
CONTAINERD_ROOT = STATE / "containerd"
CONTAINERD_SOCKET = namespaces.RUN / "containerd.sock"
CNI_CONFIG = ETC / "cni"
CNI_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
PAUSE = "localhost/pause:1"


def write_all() -> None:
    """Write them."""
    for folder in (ETC, CNI_CONFIG, VOLUMES):
        folder.mkdir(parents=True, exist_ok=True)
    VOLUMES.chmod(0o777)
    files = {
        # No other host is reachable from here, so pods that ask for the node's resolver get the cluster's.
        "resolv.conf": f"nameserver {DNS_SERVICE_IP}\n",
        "containerd.toml": containerd(),
        "cni/10-bridge.conflist": to_json(cni()),
        "kubelet.yaml": to_json(kubelet()),
        "kube-proxy.yaml": to_json(kube_proxy()),
        "Corefile": corefile(),
        "local-path.json": to_json(local_path()),
        "helper-pod.yaml": to_json(helper_pod()),
    }
    for name, text in files.items():
        path = ETC / name
        # kube-proxy ends itself when its file is written.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def containerd() -> str:
    """containerd 1.6 and newer 1.x, with all that it keeps below the node's state."""
    kind = run(["stat", "--file-system", "--format=%T", STATE]).strip()
    # An overlay cannot be stacked on an overlay (the node in a container without a volume for its state).
    snapshotter = "native" if kind.startswith("overlay") else "overlayfs"
    return f"""\
version = 2
root = "{CONTAINERD_ROOT}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper"]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
path = "{STATE / "opt"}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
# Without CAP_SYS_RESOURCE (the node inside a container) no pod starts otherwise.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_plugins()}"
conf_dir = "{CNI_CONFIG}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def cni_plugins() -> str:
    """The folder of the CNI plugins."""
    for folder in CNI_PLUGINS:
        if shutil.which(f"{folder}/bridge"):
            return folder
    raise Problem(f"no CNI plugins in {' or '.join(CNI_PLUGINS)}: install containernetworking-plugins")


def cni() -> object:
    """Pods on one bridge, addresses from one range, host ports."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(STATE / "cni/addresses"),
            "ranges": [[{"subnet": POD_CIDR}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": NAME, "plugins": [bridge, portmap]}


def kubelet() -> object:
    """Kubelet as it comes, but for where things are, room for many pods, and a disk that may be full."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(CA)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(PKI / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(PKI / "kubelet-server.key"),
        "healthzBindAddress": NODE_IP,
        "clusterDNS": [DNS_SERVICE_IP],
        "clusterDomain": DOMAIN,
        "resolvConf": str(ETC / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{NAME}",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxPods": 250,
        "volumePluginDir": str(STATE / "opt/volume-plugins"),
        # Images cannot be pulled again, so none is removed for want of space.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
    }


def kube_proxy() -> object:
    """kube-proxy in iptables mode; connection tracking limits belong to the host and stay as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig_of("kube-proxy"))},
        "bindAddress": NODE_IP,
        "healthzBindAddress": f"{NODE_IP}:10256",
        "metricsBindAddress": f"{NODE_IP}:10249",
        "clusterCIDR": POD_CIDR,
        "mode": "iptables",
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        # Without br_netfilter, answers between two pods of the bridge would miss the translation back.
        "iptables": {"masqueradeAll": not Path("/proc/sys/net/bridge").exists()},
    }


def corefile() -> str:
    """A cluster's usual DNS and caching for its own names; it says at once that no others exist."""
    return f"""\
{DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {NODE_IP}
    errors
    health {NODE_IP}:8080
    ready {NODE_IP}:8181
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig "{kubeconfig_of("coredns")}"
        pods insecure
        ttl 30
    }}
    cache {{
        success 9984 30
        denial 9984 5
    }}
    loadbalance
}}

.:53 {{
    bind {NODE_IP}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def local_path() -> object:
    """One folder for all nodes (there is one), which is what makes ReadWriteMany possible."""
    return {"sharedFileSystemPath": str(VOLUMES), "setupCommand": "/volume", "teardownCommand": "/volume"}


def helper_pod() -> object:
    """The pod that makes and removes a volume's folder."""
    container = {"name": "volume", "image": PAUSE, "imagePullPolicy": "IfNotPresent"}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "volume"}, "spec": spec}


def ctr() -> list[str | Path]:
    """containerd's own client, inside the node."""
    return [*namespaces.enter(), "ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io"]


def objects() -> str:
    """The YAML of all objects that the parts need in the cluster."""
    values = {
        "NODE_IP": NODE_IP,
        "DNS_SERVICE_IP": DNS_SERVICE_IP,
        "CA": encoded(CA),
        "LOCAL_PATH_CONFIG": json.dumps(local_path()),
        "HELPER_POD": json.dumps(helper_pod()),
    }
    texts = (path.read_text() for path in sorted((CLUSTER_DIR / "objects").glob("*.yaml")))
    return "\n---\n".join(Template(text).substitute(values) for text in texts)


def to_json(content: object) -> str:
    """JSON, which is YAML too."""
    return json.dumps(content, indent=2) + "\n"
