"""dsjob: run DeepSpeed training on Kubernetes from one values file.

A comfort layer over the deepspeed-job chart. It keeps no state of its own: whatever it shows is found by
labels in the cluster, so it works on a job that helm, Argo CD or kubectl made.
"""

__version__ = "0.1.0"
