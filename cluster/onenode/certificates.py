"""Three authorities, as kubeadm has them (cluster, front proxy, etcd), and what they sign, by openssl."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path

from .base import KUBECONFIG, STATE, run
from .identity import API_SERVICE_IP, API_URL, CONTEXT, DOMAIN, NODE, NODE_IP

PKI = STATE / "pki"
CA = PKI / "ca.crt"
# The kubeconfig of each part is named after it: {file: subject}.
CLIENTS = {
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
    "coredns": "/CN=system:coredns",
    "metrics-server": "/CN=system:metrics-server",
    "local-path-provisioner": "/CN=system:local-path-provisioner",
    "admin": "/O=system:masters/CN=kubernetes-admin",
}
API_NAMES = [
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    f"DNS:kubernetes.default.svc.{DOMAIN}",
    f"IP:{API_SERVICE_IP}",
    f"IP:{NODE_IP}",
]


def create() -> bool:
    """Make all keys, certificates and kubeconfigs, once in a cluster's life; False if they are there."""
    done = PKI / "done"
    if done.exists():
        return False
    PKI.mkdir(parents=True, exist_ok=True, mode=0o700)
    for authority in ("ca", "front-proxy-ca", "etcd-ca"):
        sign(authority, f"/CN={authority}", AUTHORITY)
    sign("apiserver", "/CN=kube-apiserver", server(API_NAMES), "ca")
    sign("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client", CLIENT, "ca")
    sign("front-proxy", "/CN=front-proxy-client", CLIENT, "front-proxy-ca")
    sign("etcd", "/CN=etcd", server(["IP:127.0.0.1"]), "etcd-ca")
    sign("apiserver-etcd", "/CN=kube-apiserver-etcd-client", CLIENT, "etcd-ca")
    sign("kubelet-server", CLIENTS["kubelet"], server([f"IP:{NODE_IP}", f"DNS:{NODE}"]), "ca")
    sign("metrics-server-serving", "/CN=metrics-server", server(["DNS:metrics-server.kube-system.svc"]), "ca")
    tokens = PKI / "service-accounts"
    run(["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{tokens}.key"])
    run(["openssl", "ec", "-in", f"{tokens}.key", "-pubout", "-out", f"{tokens}.pub"])
    for name, subject in CLIENTS.items():
        sign(name, subject, CLIENT, "ca")
        write_kubeconfig(kubeconfig_of(name), name)
    write_kubeconfig(KUBECONFIG, "admin")
    done.touch()
    return True


def kubeconfig_of(name: str) -> Path:
    """Where a part's kubeconfig is."""
    return PKI / f"{name}.kubeconfig"


AUTHORITY = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
CLIENT = ["extendedKeyUsage=clientAuth", "keyUsage=critical,digitalSignature"]


def server(names: list[str]) -> list[str]:
    """The extensions of a server's certificate for these names; it may also be shown as a client."""
    return [
        f"subjectAltName={','.join(names)}",
        "extendedKeyUsage=serverAuth,clientAuth",
        "keyUsage=critical,digitalSignature",
    ]


def sign(name: str, subject: str, extensions: list[str], authority: str | None = None) -> None:
    """Make NAME.key and NAME.crt, signed by an authority or by itself."""
    by = ["-CA", PKI / f"{authority}.crt", "-CAkey", PKI / f"{authority}.key"] if authority else []
    with tempfile.NamedTemporaryFile("w", suffix=".cnf") as config:
        # The machine's openssl.cnf would add extensions of its own.
        config.write("[req]\ndistinguished_name=dn\n[dn]\n")
        config.flush()
        request = ["openssl", "req", "-x509", "-config", config.name, "-days", "3650", "-subj", subject]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
        files = ["-keyout", PKI / f"{name}.key", "-out", PKI / f"{name}.crt"]
        also = [word for extension in extensions for word in ("-addext", extension)]
        run([*request, *by, *key, *files, *also])


def write_kubeconfig(path: Path, client: str) -> None:
    """Write a kubeconfig (JSON is YAML) that holds all it needs, so that it can be copied."""
    cluster = {"server": API_URL, "certificate-authority-data": encoded(CA)}
    user = {
        "client-certificate-data": encoded(PKI / f"{client}.crt"),
        "client-key-data": encoded(PKI / f"{client}.key"),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": client}}],
        "current-context": CONTEXT,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n")


def encoded(path: Path) -> str:
    """A file's content in base64."""
    return base64.b64encode(path.read_bytes()).decode()
