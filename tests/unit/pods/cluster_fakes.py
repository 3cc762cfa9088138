"""What a program of the launcher's pod finds in the cluster, as far as it asks."""

import json
import threading

from kubeapi import ApiError


class FakeApi:
    """An API server that keeps objects by their path, and refuses a PUT of an older resourceVersion as the real one does."""

    def __init__(self, **objects):
        self.objects = objects
        self.calls = []
        self.on_call = lambda method, path: None
        self._lock = threading.RLock()
        self._version = 1

    def put(self, path, found):
        """Store an object, as somebody else would."""
        with self._lock:
            self._version += 1
            found.setdefault("metadata", {})["resourceVersion"] = str(self._version)
            self.objects[path] = json.loads(json.dumps(found))

    def call(self, method, path, body=None):
        self.on_call(method, path)
        with self._lock:
            self.calls.append((method, path, body))
            if method == "PATCH":
                return {}
            if path not in self.objects:
                raise ApiError(404, "not found")
            if method == "PUT":
                if (
                    body["metadata"].get("resourceVersion")
                    != self.objects[path]["metadata"]["resourceVersion"]
                ):
                    raise ApiError(409, "the object has been modified")
                self.put(path, body)
            return json.loads(json.dumps(self.objects[path]))

    def bodies(self, method, end):
        """What was sent by this method to paths that end so."""
        return [body for one, path, body in self.calls if one == method and path.endswith(end)]
