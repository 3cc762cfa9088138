"""The parts of the node: how each is started and how it shows that it works."""

from __future__ import annotations

import socket
import ssl
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import processes
from .base import BIN, LOGS, STATE
from .certificates import CA, PKI, kubeconfig_of
from .configs import CONTAINERD_SOCKET, ETC
from .identity import API_URL, DOMAIN, NODE, NODE_IP, POD_CIDR, SERVICE_CIDR

PROVISIONER_NAMESPACE = "local-path-storage"


@dataclass(frozen=True)
class Part:
    """One process of the node. `wave` orders the start: those of a wave start together."""

    name: str
    wave: int
    argv: Callable[[], list[str | Path]]
    answers: Callable[[], bool]

    def pid(self) -> int | None:
        """Its pid, or None if it does not run."""
        return processes.pid_of(self.name)

    def log(self) -> Path:
        """Its log file."""
        return LOGS / f"{self.name}.log"


def url(address: str) -> Callable[[], bool]:
    """A check that passes when the address answers 200."""

    def check() -> bool:
        # The answer's truth is not in question, only whether one comes.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(address, timeout=2) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    return check


def containerd_answers() -> bool:
    """Whether containerd accepts connections."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(CONTAINERD_SOCKET))
        except OSError:
            return False
    return True


def etcd() -> list[str | Path]:
    """The cluster's memory, for the API server only."""
    return [
        BIN / "etcd",
        f"--data-dir={STATE / 'etcd'}",
        "--listen-client-urls=https://127.0.0.1:2379",
        "--advertise-client-urls=https://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        f"--listen-metrics-urls=http://{NODE_IP}:2381",
        f"--cert-file={PKI / 'etcd.crt'}",
        f"--key-file={PKI / 'etcd.key'}",
        f"--trusted-ca-file={PKI / 'etcd-ca.crt'}",
        "--client-cert-auth",
    ]


def kube_apiserver() -> list[str | Path]:
    """The API server, with upstream's admission plugins and the node's own."""
    return [
        BIN / "kube-apiserver",
        f"--advertise-address={NODE_IP}",
        "--allow-privileged",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={CA}",
        "--etcd-servers=https://127.0.0.1:2379",
        f"--etcd-cafile={PKI / 'etcd-ca.crt'}",
        f"--etcd-certfile={PKI / 'apiserver-etcd.crt'}",
        f"--etcd-keyfile={PKI / 'apiserver-etcd.key'}",
        f"--kubelet-certificate-authority={CA}",
        f"--kubelet-client-certificate={PKI / 'apiserver-kubelet.crt'}",
        f"--kubelet-client-key={PKI / 'apiserver-kubelet.key'}",
        # Else logs and exec look the node's name up in DNS.
        "--kubelet-preferred-address-types=InternalIP",
        *front_proxy(),
        f"--proxy-client-cert-file={PKI / 'front-proxy.crt'}",
        f"--proxy-client-key-file={PKI / 'front-proxy.key'}",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={PKI / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={PKI / 'service-accounts.key'}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--tls-cert-file={PKI / 'apiserver.crt'}",
        f"--tls-private-key-file={PKI / 'apiserver.key'}",
    ]


def front_proxy() -> list[str]:
    """How the API server vouches for a user before the servers behind it."""
    return [
        f"--requestheader-client-ca-file={PKI / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
    ]


def kube_controller_manager() -> list[str | Path]:
    """The controllers; there is only one of it, so it needs no election."""
    return [
        BIN / "kube-controller-manager",
        *serving("kube-controller-manager"),
        "--leader-elect=false",
        f"--client-ca-file={CA}",
        f"--requestheader-client-ca-file={PKI / 'front-proxy-ca.crt'}",
        f"--cluster-signing-cert-file={CA}",
        f"--cluster-signing-key-file={PKI / 'ca.key'}",
        f"--root-ca-file={CA}",
        f"--service-account-private-key-file={PKI / 'service-accounts.key'}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--cluster-cidr={POD_CIDR}",
        "--use-service-account-credentials",
    ]


def kube_scheduler() -> list[str | Path]:
    """The scheduler; needs no election either."""
    return [BIN / "kube-scheduler", *serving("kube-scheduler"), "--leader-elect=false"]


def serving(name: str) -> list[str]:
    """A part's access to the API server, and its own address."""
    config = kubeconfig_of(name)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={NODE_IP}",
    ]


def containerd() -> list[str | Path]:
    """Debian's containerd with a configuration, a socket and a content store of the node's own."""
    return ["containerd", "--config", ETC / "containerd.toml"]


def kubelet() -> list[str | Path]:
    """Kubelet, at its usual places below /var/lib and /var/log, which lead to the node's state."""
    return [
        BIN / "kubelet",
        f"--config={ETC / 'kubelet.yaml'}",
        f"--kubeconfig={kubeconfig_of('kubelet')}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_IP}",
    ]


def kube_proxy() -> list[str | Path]:
    """Services, by iptables inside the node."""
    return [BIN / "kube-proxy", f"--config={ETC / 'kube-proxy.yaml'}", f"--hostname-override={NODE}"]


def coredns() -> list[str | Path]:
    """The cluster's DNS."""
    return [BIN / "coredns", "-conf", ETC / "Corefile"]


def local_path_provisioner() -> list[str | Path]:
    """Makes volumes for claims, by helper pods in a namespace of its own."""
    return [
        BIN / "local-path-provisioner",
        "start",
        *("--config", ETC / "local-path.json"),
        *("--helper-pod-file", ETC / "helper-pod.yaml"),
        *("--helper-image", "unused: the helper pod names its own"),
        *("--kubeconfig", kubeconfig_of("local-path-provisioner")),
        *("--namespace", PROVISIONER_NAMESPACE),
        *("--service-account-name", "default"),
    ]


def metrics_server() -> list[str | Path]:
    """What `kubectl top` asks, through the API server."""
    return [
        BIN / "metrics-server",
        *serving("metrics-server"),
        "--secure-port=4443",
        f"--tls-cert-file={PKI / 'metrics-server-serving.crt'}",
        f"--tls-private-key-file={PKI / 'metrics-server-serving.key'}",
        f"--kubelet-certificate-authority={CA}",
        "--kubelet-preferred-address-types=InternalIP",
        "--metric-resolution=15s",
    ]


def runs_at_all() -> bool:
    """For a part that offers nothing to ask."""
    return True


PARTS = [
    Part("etcd", 1, etcd, url(f"http://{NODE_IP}:2381/health")),
    Part("containerd", 1, containerd, containerd_answers),
    Part("kube-apiserver", 2, kube_apiserver, url(f"{API_URL}/readyz")),
    Part("kube-controller-manager", 3, kube_controller_manager, url(f"https://{NODE_IP}:10257/healthz")),
    Part("kube-scheduler", 3, kube_scheduler, url(f"https://{NODE_IP}:10259/healthz")),
    Part("kubelet", 3, kubelet, url(f"http://{NODE_IP}:10248/healthz")),
    Part("kube-proxy", 3, kube_proxy, url(f"http://{NODE_IP}:10256/healthz")),
    Part("coredns", 4, coredns, url(f"http://{NODE_IP}:8181/ready")),
    Part("local-path-provisioner", 4, local_path_provisioner, runs_at_all),
    Part("metrics-server", 4, metrics_server, url(f"https://{NODE_IP}:4443/livez")),
]
