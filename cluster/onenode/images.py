"""The images that are made here, with buildah and nothing from a registry of images."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from . import configs
from .base import BIN, CACHE, Problem, need_linux_root, need_packages, run, say, succeeds, versions

# Without a Docker daemon and often inside a container: no second layer of namespaces for buildah.
os.environ.setdefault("BUILDAH_ISOLATION", "chroot")

SLIM = """\
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/man/*
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def debian_image() -> str:
    """The name of the Debian base image."""
    return f"localhost/debian:{versions()['DEBIAN_SUITE']}"


def make_debian_image(force: bool = False) -> None:
    """Make the Debian base image with debootstrap, from the mirror that this machine's apt uses."""
    need_linux_root()
    need_packages({"debootstrap": "debootstrap", "buildah": "buildah"})
    suite, image = versions()["DEBIAN_SUITE"], debian_image()
    if not force and has_image(image):
        say(f"{image} is there")
        return
    started = time.monotonic()
    say(f"making {image} with debootstrap …")
    container = run(["buildah", "from", "scratch"]).strip()
    try:
        root = Path(run(["buildah", "mount", container]).strip())
        excludes = root / "etc/dpkg/dpkg.cfg.d/slim"
        excludes.parent.mkdir(parents=True)
        excludes.write_text(SLIM)
        mirror = [source["uri"] for source in apt_sources(suite) if source["suite"] == suite][:1]
        run(["debootstrap", "--variant=minbase", suite, root, *mirror])
        strip(root, suite)
        run(["buildah", "umount", container])
        run(["buildah", "config", "--cmd", "bash", "--env", f"PATH={PATH}", container])
        run(["buildah", "commit", "--quiet", container, image])
    finally:
        run(["buildah", "rm", container], check=False)
    say(f"made {image} in {time.monotonic() - started:.0f} s")


def strip(root: Path, suite: str) -> None:
    """Give the new system its apt sources, and take away what an image does not need."""
    sources = apt_sources(suite)
    if sources:
        (root / "etc/apt/sources.list").unlink(missing_ok=True)
        stanzas = (
            f"Types: deb\nURIs: {source['uri']}\nSuites: {source['suite']}\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
            for source in sources
        )
        (root / "etc/apt/sources.list.d/debian.sources").write_text("\n".join(stanzas))
    emptied = ["var/cache/apt", "var/lib/apt/lists", "var/log"]
    for folder in [*emptied, "usr/share/doc", "usr/share/locale", "usr/share/man"]:
        for entry in (root / folder).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (root / "etc/machine-id").write_text("")
    # debootstrap copies these two from the machine; whoever runs a container writes its own.
    for name in ("hostname", "resolv.conf"):
        (root / "etc" / name).unlink(missing_ok=True)


def apt_sources(suite: str) -> list[dict[str, str]]:
    """Where this machine's apt has the suite's packages, updates and security fixes from; maybe nowhere."""
    form = "$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(CREATED_BY)|$(REPO_URI)"
    sources = []
    for line in run(["apt-get", "indextargets", "--format", form], check=False).splitlines():
        origin, release, component, kind, uri = line.split("|", 4)
        ours = release in (suite, f"{suite}-updates", f"{suite}-security")
        if (origin, component, kind) == ("Debian", "main", "Packages") and ours:
            sources.append({"suite": release, "uri": uri})
    return sources


def pause_archive() -> Path:
    """The image of each pod's sandbox and of the volume helper, as an archive; new if its programs are."""
    archive = CACHE / "images/pause.tar"
    programs = [BIN / "pause", BIN / "volume"]
    if archive.exists() and archive.stat().st_mtime > max(program.stat().st_mtime for program in programs):
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    container = run(["buildah", "from", "scratch"]).strip()
    try:
        run(["buildah", "copy", "--quiet", container, *programs, "/"])
        run(["buildah", "config", "--entrypoint", '["/pause"]', container])
        run(["buildah", "commit", "--quiet", container, configs.PAUSE])
    finally:
        run(["buildah", "rm", container], check=False)
    archive.unlink(missing_ok=True)
    run(["buildah", "push", "--quiet", configs.PAUSE, f"docker-archive:{archive}:{configs.PAUSE}"])
    return archive


def load(archive: Path) -> bool:
    """Import an archive (docker or OCI) into the node; False if this very file was loaded before."""
    try:
        facts = archive.stat()
    except OSError as error:
        raise Problem(f"{archive}: {error.strerror}") from None
    # Beside containerd's content, and gone with it.
    stamps = configs.CONTAINERD_ROOT / "loaded"
    stamps.mkdir(parents=True, exist_ok=True)
    stamp = stamps / str(archive.resolve()).replace("/", "%")
    mark = f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
    if stamp.exists() and stamp.read_text() == mark:
        return False
    try:
        run([*configs.ctr(), "images", "import", "--all-platforms", archive.resolve()])
    except Problem as problem:
        said = str(problem).rpartition("ctr: ")[2]
        raise Problem(f"{archive} is not loaded, it must be a docker or OCI archive: {said}") from None
    stamp.write_text(mark)
    return True


def has_image(name: str) -> bool:
    """Whether buildah's storage has an image of this name."""
    return succeeds(["buildah", "inspect", "--type", "image", name])
