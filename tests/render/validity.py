"""Whether Kubernetes' own schemas, in which no other key is allowed, take an object: those of the oldest and the newest versions."""

import functools
import json
import re

from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

# The oldest that the chart supports, that of the one-node cluster, the newest that there is.
VERSIONS = ("1.29", "1.34", "1.37")
# Of schedulers that bring these resources with them.
FOREIGN = {"scheduling.volcano.sh/v1beta1", "scheduling.x-k8s.io/v1alpha1"}


def check(objects):
    """Refuse the first object that a version does not know like this."""
    for one in objects:
        if one["apiVersion"] not in FOREIGN:
            _check(json.dumps(one, sort_keys=True))


@functools.lru_cache(maxsize=10_000)
def _check(text):
    """Most objects of most tests are the same."""
    one = json.loads(text)
    for version in VERSIONS:
        for error in validator(version, one["kind"], one["apiVersion"]).iter_errors(one):
            where = ".".join(map(str, error.absolute_path))
            raise AssertionError(f"{one['kind']} {where} for Kubernetes {version}: {error.message[:500]}")


@functools.cache
def validator(version, kind, api_version):
    """kubernetes_validate.validate() without reading its files each time, which takes 10 ms."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = schema_contents(_file(version, f"{kind.lower()}-{group}"), version)
    registry = Resource.from_contents(_definitions(version)) @ Registry()
    return Draft202012Validator(schema, registry=registry)


@functools.cache
def _definitions(version):
    return schema_contents(_file(version, "_definitions"), version)


def _file(version, name):
    return f"kubernetes-json-schema/v{version}.0-local-strict/{name}.json"
