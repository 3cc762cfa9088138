"""A one-node Kubernetes for trying and testing; the commands beside this package are its only users."""
